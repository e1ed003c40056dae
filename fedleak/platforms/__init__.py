"""Updates from what the clients of other platforms upload, each read with its own sign, scale, weight and names.

The page "What clients really send" describes the uploads. The modules import no platform: they read the objects that a
server of the platform receives.
"""
