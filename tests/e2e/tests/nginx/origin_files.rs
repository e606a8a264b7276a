//! Files as players fetch them: types, ranges, caches, pages of other origins, live ingest.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use millrace_e2e::data;
use millrace_e2e::program::Program;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use millrace_lab::netns::Namespace;
use millrace_lab::run::Run;

use crate::http::{get, request};
use crate::site::Site;

pub const ORIGIN: &str = "127.0.0.1:80";

/// An origin in a namespace of its own. Dropped in this order.
pub struct OriginHost {
    pub nginx: Program,
    pub namespace: Namespace,
    pub site: Site,
    _run: Run,
}

impl OriginHost {
    pub fn start(configure: impl FnOnce(&Site)) -> Self {
        let run = Run::start().unwrap();
        let namespace = Namespace::create(&run, "origin").unwrap();
        let site = Site::new();
        configure(&site);
        let nginx = site.start(&namespace, "origin", &[]);
        Self { nginx, namespace, site, _run: run }
    }

    /// Puts a file where it is served from.
    pub fn file(site: &Site, path: &str, bytes: &[u8]) {
        let path = site.path("video").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn files_have_their_types_ranges_and_caches() {
    let film = data::pattern(4, 300_000);
    let host = OriginHost::start(|site| {
        for path in ["vod/a/m.mpd", "vod/a/m.m3u8", "vod/a/1.m4s", "vod/a/1.ts", "vod/film.mp4"] {
            OriginHost::file(site, path, &film);
        }
        OriginHost::file(site, "secret.txt", b"secret");
    });
    let get = |target: &str, headers: &[&str]| get(&host.namespace, ORIGIN, target, headers);
    for (target, kind, cache) in [
        ("/vod/a/m.mpd", "application/dash+xml", "public, max-age=60"),
        ("/vod/a/m.m3u8", "application/vnd.apple.mpegurl", "public, max-age=60"),
        ("/vod/a/1.m4s", "video/mp4", "public, max-age=86400"),
        ("/vod/a/1.ts", "video/mp2t", "public, max-age=86400"),
        ("/vod/film.mp4", "video/mp4", "public, max-age=86400"),
    ] {
        let answer = get(target, &[]);
        assert_eq!(answer.status, 200, "{target}");
        assert!(answer.body == film, "{target}");
        assert_eq!(answer.header("Content-Type"), Some(kind), "{target}");
        assert_eq!(answer.header("Cache-Control"), Some(cache), "{target}");
        assert_eq!(answer.header("Accept-Ranges"), Some("bytes"), "{target}");
    }
    // RFC 9110, Section 14.
    let part = get("/vod/film.mp4", &["Range: bytes=100-199"]);
    assert_eq!((part.status, part.body.as_slice()), (206, &film[100..200]));
    assert_eq!(part.header("Content-Range"), Some("bytes 100-199/300000"));
    assert_eq!(get("/vod/film.mp4", &["Range: bytes=-5"]).body, film[299_995..]);
    assert_eq!(get("/vod/film.mp4", &["Range: bytes=300000-"]).status, 416);
    let etag = part.header("ETag").unwrap();
    assert_eq!(get("/vod/film.mp4", &[&format!("If-None-Match: {etag}")]).status, 304);
    for target in [
        "/",
        "/secret.txt",
        "/vod/../secret.txt",
        "/vod/%2e%2e/secret.txt",
        "/vod/a/none",
        "/live/x",
    ] {
        assert_eq!(get(target, &[]).status, 404, "{target}");
    }
    assert_eq!(request(&host.namespace, ORIGIN, "PUT", "/live/x", &[], b"x").status, 405);
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn pages_of_other_origins_may_fetch_with_cmcd_headers() {
    let host = OriginHost::start(|site| {
        OriginHost::file(site, "vod/1.m4s", b"segment");
        let only = "default \"\"; \"https://player.test\" $http_origin;";
        site.edit("origin/site.conf", "    default \"*\";", only);
    });
    let ask = |method: &str, origin: &str| {
        let headers = [origin, "Access-Control-Request-Headers: cmcd-object,range"];
        request(&host.namespace, ORIGIN, method, "/vod/1.m4s", &headers, b"")
    };
    let allowed = ask("GET", "Origin: https://player.test");
    assert_eq!(allowed.header("Access-Control-Allow-Origin"), Some("https://player.test"));
    assert_eq!(allowed.header("Access-Control-Allow-Headers"), None, "no preflight");
    assert!(allowed.header("Access-Control-Expose-Headers").unwrap().contains("Content-Range"));
    assert_eq!(
        ask("GET", "Origin: https://other.test").header("Access-Control-Allow-Origin"),
        None
    );
    let preflight = ask("OPTIONS", "Origin: https://player.test");
    assert_eq!((preflight.status, preflight.body.len()), (204, 0));
    for header in
        ["Authorization", "Range", "CMCD-Object", "CMCD-Request", "CMCD-Session", "CMCD-Status"]
    {
        let list = preflight.header("Access-Control-Allow-Headers").unwrap();
        assert!(list.split(", ").any(|it| it == header), "{list}");
    }
    assert_eq!(preflight.header("Access-Control-Allow-Methods"), Some("GET, HEAD, OPTIONS"));
}

/// A real encoder PUTs a live presentation; manifest and segments are there while it runs.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_live_presentation_is_put_and_served() {
    let host = OriginHost::start(|site| {
        fs::set_permissions(site.path("video"), fs::Permissions::from_mode(0o755)).unwrap();
    });
    let mut ffmpeg = host.namespace.command("ffmpeg");
    ffmpeg.args(["-loglevel", "error", "-re", "-f", "lavfi", "-i", "testsrc=size=64x64:rate=10"]);
    ffmpeg.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "10", "-keyint_min", "10"]);
    ffmpeg.args(["-t", "60", "-f", "dash", "-seg_duration", "1", "-window_size", "3"]);
    ffmpeg.args([
        "-extra_window_size",
        "1",
        "-method",
        "PUT",
        "http://127.0.0.1:8081/live/one/m.mpd",
    ]);
    let encoder = Program::start("ffmpeg", ffmpeg);
    let get = |target: &str| get(&host.namespace, ORIGIN, target, &[]);
    let segment = |number: u32| format!("/live/one/chunk-stream0-{number:05}.m4s");
    wait::for_true("the second segment", DEFAULT_TIMEOUT * 2, || get(&segment(2)).status == 200);
    let manifest = get("/live/one/m.mpd");
    assert_eq!(manifest.header("Cache-Control"), Some("no-cache"));
    assert!(manifest.text().contains("type=\"dynamic\""), "{}", manifest.text());
    // ISO BMFF: a segment begins with the size and name of a box.
    let second = get(&segment(2));
    assert_eq!(&second.body[4..8], b"styp");
    assert_eq!(second.header("Cache-Control"), Some("public, max-age=60"));
    let delete = request(&host.namespace, "127.0.0.1:8081", "DELETE", &segment(1), &[], b"");
    assert_eq!((delete.status, get(&segment(1)).status), (204, 404));
    drop(encoder);
    let time = get("/time");
    assert!(time.text().starts_with("20") && time.text().contains('T'), "{}", time.text());
    // Only into /live/, and only by the encoder's way.
    let put =
        |to: &str, target: &str| request(&host.namespace, to, "PUT", target, &[], b"x").status;
    assert_eq!(put("127.0.0.1:8081", "/vod/x"), 404);
    assert_eq!(put("127.0.0.1:8081", "/live/../x"), 404);
    assert_eq!(put(ORIGIN, "/live/one/x"), 405);
}
