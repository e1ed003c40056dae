"""What a context keeps for the trials that share it."""

from fedleak.experiments import Context, spawned


def test_the_latest_of_what_the_trials_of_one_setting_share_is_kept():
    ctx, made = Context("cpu"), []

    def get(kind, i, most=0):
        return ctx.once((kind, i), lambda: made.append((kind, i)) or i, most)

    assert [get("net", i, most=2) for i in (0, 1, 1, 2, 1, 0)] == [0, 1, 1, 2, 1, 0]
    assert made == [("net", 0), ("net", 1), ("net", 2), ("net", 0)]
    get("other", 0)
    get("net", 3, most=2)
    get("other", 0)
    assert made[4:] == [("other", 0), ("net", 3)]


def test_a_seed_for_each_role_of_a_trial():
    roles = [spawned(seed, role) for seed in (3, 4) for role in ("weights", "batch")]
    assert len({3, 4, *roles}) == 6
    assert spawned(3, "weights") == roles[0]
    assert all(0 <= seed < 2**63 for seed in roles)
