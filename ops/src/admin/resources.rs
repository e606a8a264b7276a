//! The resources of the admin listener, in the order in which `docs/reference/admin-api.md` lists them.

/// A path of the admin listener and the methods that it has.
#[derive(Clone, Copy, Debug)]
pub struct AdminResource {
    /// `CONNECTION` stands for the ID of a connection, as `/flows` shows it.
    pub path: &'static str,
    /// As the `Allow` field lists them.
    pub methods: &'static [&'static str],
    /// Whether it asks for the token where `admin.token_file` is set.
    pub needs_token: bool,
    /// One use of it in each line: method, path and query, and the result.
    pub uses: &'static [(&'static str, &'static str)],
    /// Status codes other than 200 and those that every resource has.
    pub errors: &'static [(u16, &'static str)],
    /// Types of the JSON in the answers, by their names in the source; none for another content.
    pub answers: &'static [&'static str],
}

const READ: &[&str] = &["GET", "HEAD"];

/// All of them.
pub const ADMIN_RESOURCES: [AdminResource; 9] = [
    AdminResource {
        path: "/",
        methods: READ,
        needs_token: false,
        uses: &[("GET /", "live page of the flows; it requests `/flows` once a second")],
        errors: &[],
        answers: &[],
    },
    AdminResource {
        path: "/metrics",
        methods: READ,
        needs_token: true,
        uses: &[("GET /metrics", "metrics in the text format of Prometheus")],
        errors: &[],
        answers: &[],
    },
    AdminResource {
        path: "/flows",
        methods: READ,
        needs_token: true,
        uses: &[
            ("GET /flows", "all flows"),
            (
                "GET /flows?session=NAME",
                "flows of one playback session, by the player's own name for it (`sid` of CMCD)",
            ),
            (
                "GET /flows?filter=WORDS",
                "flows that have each of the words in destination, client, class, protocol, algorithm, state or \
                 connection",
            ),
            (
                "GET /flows?order=rate&limit=N&offset=N",
                "a page of them: those with the highest rates first, or by ID with `order=id`, which is the default",
            ),
        ],
        errors: &[(400, "another parameter, or a wrong value; the body says what would be right")],
        answers: &["FlowsResponse"],
    },
    AdminResource {
        path: "/status",
        methods: READ,
        needs_token: true,
        uses: &[("GET /status", "identity, health, totals, and the last 100 flows that ended")],
        errors: &[],
        answers: &["StatusResponse"],
    },
    AdminResource {
        path: "/healthz",
        methods: READ,
        needs_token: false,
        uses: &[("GET /healthz", "whether flows are carried, and move")],
        errors: &[(503, "they are not; the body has the reason in one line")],
        answers: &[],
    },
    AdminResource {
        path: "/livez",
        methods: READ,
        needs_token: false,
        uses: &[("GET /livez", "whether the process works, whatever its peers and paths do")],
        errors: &[(503, "it does not, and has to be restarted; the body has the reason")],
        answers: &[],
    },
    AdminResource {
        path: "/qlog",
        methods: &["GET"],
        needs_token: true,
        uses: &[("GET /qlog", "running traces")],
        errors: &[(403, "`admin.qlog_dir` is not set")],
        answers: &["TracesResponse"],
    },
    AdminResource {
        path: "/qlog/CONNECTION",
        methods: &["PUT", "DELETE"],
        needs_token: true,
        uses: &[
            ("PUT /qlog/CONNECTION", "starts a trace"),
            ("DELETE /qlog/CONNECTION", "stops a trace"),
        ],
        errors: &[
            (400, "not the ID of a connection"),
            (403, "`admin.qlog_dir` is not set"),
            (404, "no such connection, or no trace of it"),
            (409, "the connection is traced already"),
            (429, "too many traces"),
            (500, "the file can't be written"),
            (503, "no answer in time"),
        ],
        answers: &["Changed"],
    },
    AdminResource {
        path: "/congestion_control/CONNECTION",
        methods: &["GET", "PUT", "DELETE"],
        needs_token: true,
        uses: &[
            ("GET /congestion_control/CONNECTION", "input and choice of the rules (`Explained`)"),
            (
                "PUT /congestion_control/CONNECTION?algorithm=NAME",
                "switches to the algorithm, with default parameters, and pins it",
            ),
            (
                "PUT /congestion_control/CONNECTION?share=S",
                "share of the bottleneck for `vivace-weighted`, above 0 and at most 1",
            ),
            (
                "PUT /congestion_control/CONNECTION?yield_above_mbps=R",
                "rate above which `proteus-h` yields to other flows",
            ),
            ("DELETE /congestion_control/CONNECTION", "releases a pinned algorithm"),
        ],
        errors: &[
            (400, "not the ID of a connection, no such algorithm, or not a number"),
            (404, "no such connection, or no rules select its algorithm"),
            (409, "one of the two algorithms can't be replaced, or has no such setting"),
            (503, "no answer in time"),
        ],
        answers: &["Explained", "CcOverrideResult"],
    },
];
