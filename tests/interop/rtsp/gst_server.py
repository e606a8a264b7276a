"""A video over RTSP by gst-rtsp-server: gst_server.py --video FILE --port PORT [--user NAME --password WORD] [--sound]

FILE is Matroska with H.264. Every player gets it from the begin. With a user, players have to authenticate by Digest.
Runs with Debian's Python, which has the bindings.
"""

import argparse
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

PATHS = ["/video", "/Streaming/Channels/101"]
ROLE = "viewer"
VIDEO = ('filesrc location="{video}" ! matroskademux ! h264parse ! '
         "rtph264pay name=pay0 pt=96 config-interval=-1")
# G.711, as cameras send it.
SOUND = ("audiotestsrc is-live=true num-buffers={buffers} samplesperbuffer=160 ! "
         "audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay name=pay1 pt=0")
SOUND_BUFFERS_PER_S = 50


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--version", action="store_true")
    arguments.add_argument("--video")
    arguments.add_argument("--port")
    arguments.add_argument("--user")
    arguments.add_argument("--password")
    arguments.add_argument("--sound", action="store_true")
    arguments.add_argument("--seconds", type=int, default=6)
    options = arguments.parse_args()
    Gst.init(None)
    if options.version:
        print(".".join(str(part) for part in Gst.version()[:3]))
        return
    serve(options)


def serve(options):
    server = GstRtspServer.RTSPServer()
    server.set_service(options.port)
    pipeline = VIDEO.format(video=options.video)
    if options.sound:
        pipeline += " " + SOUND.format(buffers=options.seconds * SOUND_BUFFERS_PER_S)
    for path in PATHS:
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(f"( {pipeline} )")
        if options.user:
            permissions = GstRtspServer.RTSPPermissions()
            for permission in ["media.factory.access", "media.factory.construct"]:
                permissions.add_permission_for_role(ROLE, permission, True)
            factory.set_permissions(permissions)
        server.get_mount_points().add_factory(path, factory)
    if options.user:
        server.set_auth(digest(options.user, options.password))
    if server.attach(None) == 0:
        sys.exit(f"port {options.port} can't be bound")
    GLib.MainLoop().run()


def digest(user, password):
    auth = GstRtspServer.RTSPAuth()
    auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", ROLE)
    auth.add_digest(user, password, token)
    return auth


main()
