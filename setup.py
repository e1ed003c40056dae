"""What pyproject.toml cannot say: `fedleak_book` is importable in a checkout, and not in the wheel."""

from setuptools import setup
from setuptools.command.build_py import build_py


class ThePackageAlone(build_py):
    """Leaves out what runs in a checkout only."""

    def finalize_options(self):
        """Take the packages that are found, less those."""
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if name.split(".")[0] == "fedleak"]


setup(cmdclass={"build_py": ThePackageAlone})
