"""Read the uploads of other platforms' clients as updates, with each platform's sign, scale, weight and names.

The page "What clients really send" describes the uploads. The modules import no platform: they read the objects that a
server of the platform receives.
"""
