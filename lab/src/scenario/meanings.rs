//! What the keys of a scenario file are for. The reader knows their types, ranges and defaults.

/// Path and meaning, as `super::keys` names the paths.
pub(super) const MEANINGS: [(&str, &str); 114] = [
    (
        "name",
        "Name of the scenario and of its directory in the results: up to 60 small letters, digits and hyphens.",
    ),
    ("title", "One line, which stands above its results."),
    ("figure", "Figure or table of a paper that it reproduces."),
    ("about", "What else a reader needs to know: what the paper leaves open, and what was chosen."),
    ("drivers", "What can run it: a list with `simulator`, `emulator` or both. Default: both."),
    ("repeat", "How often each cell is run."),
    ("seed", "Seed of the first repeat; each further one has the next, in every cell."),
    ("series", "Which repeats keep their time series."),
    (
        "pictures_s",
        "Seconds into a player's session whose frame is drawn afterwards. Default: three instants.",
    ),
    ("sweep", "What varies between runs."),
    ("claim", "What is claimed of the results."),
    ("plot", "How the results are drawn."),
    ("duration_s", "Length of a run."),
    ("warmup_s", "Time at the start that figures exclude; less than `duration_s`."),
    ("ip", "Version of the Internet Protocol, in the emulator."),
    ("link", "The bottleneck, in the direction of the data. Required."),
    ("link.rate_mbps", "Rate, in 10^6 bit/s of the network layer. Either this or `trace`."),
    ("link.trace", "File of a recorded link, which repeats when it is over."),
    ("link.trace_format", "Format of `trace`."),
    ("link.rtt_ms", "Propagation, both ways together."),
    ("link.buffer_bytes", "Bytes that may wait in the queue, which drops from its tail. Required."),
    ("link.loss", "Probability that a data packet is lost at random; 0.01 is 1 %."),
    ("link.loss_reverse", "Probability that an acknowledgement is lost at random."),
    ("link.jitter_ms", "Each data packet is late by up to this."),
    ("link.reorder", "Whether jitter may change the order of packets."),
    (
        "link.random_change",
        "Values of the link that are drawn again from ranges, evenly; at least one of the three.",
    ),
    ("link.random_change.every_s", "Time between draws."),
    ("link.random_change.rate_mbps", "Range of the rate."),
    ("link.random_change.rtt_ms", "Range of the propagation."),
    ("link.random_change.loss", "Range of the probability of random loss."),
    ("link.change", "Changes of the link at given times; each changes at least one value."),
    ("link.change[].at_s", "Time of the change."),
    ("link.change[].rate_mbps", "Rate from then on; it ends a trace."),
    ("link.change[].rtt_ms", "Propagation from then on."),
    ("link.change[].buffer_bytes", "Bytes that may wait from then on."),
    ("link.change[].loss", "Probability of random loss from then on."),
    ("sim", "What only the simulator knows."),
    ("sim.ack_every", "A receiver acknowledges after so many packets (RFC 9000, Section 13.2.2)."),
    ("sim.ack_delay_ms", "Or after so much time (RFC 9000, Section 18.2)."),
    ("sim.ack_aggregation_ms", "Acknowledgements come back together at multiples of this."),
    (
        "sim.initial_window_packets",
        "Window before the first acknowledgement (RFC 9002, Section 7.2).",
    ),
    ("sim.packet_bytes", "Size of a full packet of the network layer."),
    ("spread", "What is drawn for each run by its seed, so that repeats differ."),
    (
        "spread.rtt",
        "The round trip is longer or shorter by up to this share, in the whole run; 0 for none.",
    ),
    (
        "spread.start_s",
        "Each flow but those of players starts later by up to this, and by 1 % of the duration at most; 0 for none.",
    ),
    ("measure", "How some figures are computed."),
    (
        "measure.convergence",
        "`share`: from a flow's start to the earliest second from which on its throughput per second stays within \
         `share_tolerance` of its fair share for `hold_s` (Vivace, Section 5.2.1). `jain`: to the earliest second from \
         which on Jain's index of all active flows stays above `jain_above` for `hold_s` (Iris, Section VI-B5). Both \
         look until the next flow starts or stops.",
    ),
    ("measure.share_tolerance", "For `share`: deviation from the fair share."),
    ("measure.jain_above", "For `jain`: the index that counts as fair."),
    ("measure.hold_s", "Time for which that must last."),
    (
        "measure.follow_tolerance",
        "A flow has followed a `[[link.change]]` of the rate when two seconds in a row bring its fair share of the new \
         rate within this.",
    ),
    ("measure.settle_s", "Time after a change of shares that `share_error` leaves out."),
    (
        "measure.epoch_s",
        "In the simulator: length of the epochs of `epoch_correlation` and its like. Without it they are not computed.",
    ),
    (
        "peer",
        "Third-party pairs of programs that carry TCP across the link, by name, for `cc = \"peer:NAME\"`.",
    ),
    (
        "peer.NAME.server",
        "Program and arguments of the server's side, a list; without it the client does it all.",
    ),
    ("peer.NAME.client", "Program and arguments of the client's side, a list. Required."),
    ("peer.NAME.files", "Texts of files that are written before the programs start, by name."),
    (
        "external",
        "Congestion controllers that are programs of their own, by name, for `cc = \"external:NAME\"` in the simulator.",
    ),
    (
        "external.NAME.command",
        "Program and arguments, a list; it runs in the directory of the scenario. Required.",
    ),
    ("external.NAME.timeout_s", "Time for an answer, after which the run fails."),
    ("flow", "The senders, a table for each kind. Required."),
    (
        "flow[].cc",
        "Algorithm: a name of `millrace-client algorithms`; in the emulator also `kernel:cubic`, `kernel:bbr`, \
         `kernel:reno` and `peer:NAME`, in the simulator also `external:NAME`.",
    ),
    ("flow[].parameters", "Parameters of the algorithm, a table."),
    ("flow[].label", "Name in plots and claims. Default: `cc`."),
    (
        "flow[].app",
        "What the flows have to send: as much as they can, segments of a video-like source, frames of a live encoder \
         (simulator only), or what a player fetches: of DASH (in the simulator a virtual one), or of RTSP (emulator only).",
    ),
    ("flow[].segment_bytes", "For `on_off`: size of a segment."),
    ("flow[].every_s", "For `on_off`: time from one segment to the next."),
    ("flow[].frames_per_s", "For `encoder`: frames in a second."),
    (
        "flow[].rate_share",
        "For `encoder`: share of the controller's rate that it takes; the rest is for lost data and for a frame's burst.",
    ),
    (
        "flow[].min_mbps",
        "For `encoder`: least rate, in UDP payload; also before there is a round trip.",
    ),
    (
        "flow[].max_mbps",
        "For `encoder`: highest rate. The same as `min_mbps`: a camera that follows nothing.",
    ),
    (
        "flow[].key_frame_every",
        "For `encoder`: frames from one key frame to the next; 1: all are alike.",
    ),
    (
        "flow[].key_frame_ratio",
        "For `encoder`: size of a key frame, as a multiple of the others'; the mean rate stays.",
    ),
    (
        "flow[].abr",
        "For `dash`: how the player chooses the next segment's bitrate; `l2a` and `lolp` in the emulator only.",
    ),
    ("flow[].buffer_s", "For `dash`: media that the player strives to have in its buffer."),
    (
        "flow[].fast_switch",
        "For `dash`: whether the player fetches buffered segments again at a higher bitrate.",
    ),
    (
        "flow[].rate_cap",
        "For `dash`: whether the server edge sends no faster than the player can use (`dash.rate_cap` of the server); simulator only.",
    ),
    ("flow[].media_mbps", "For `rtsp`: mean rate of the stream, 15, 30, 50 or 95."),
    (
        "flow[].client_buffer_s",
        "For `rtsp`: media that the player holds before it begins, and after each stall.",
    ),
    ("flow[].transport", "For `rtsp`: what carries RTP."),
    (
        "flow[].class",
        "Class that MCC takes the flows for. Default: that of `app` (`on_off` is `dash`).",
    ),
    ("flow[].count", "Number of such flows."),
    ("flow[].start_s", "Start of the first one."),
    ("flow[].start_every_s", "Time between the starts of two of them."),
    ("flow[].stop_s", "End of all of them. Default: `duration_s`."),
    ("flow[].extra_rtt_ms", "Further propagation of these flows alone."),
    (
        "flow[].saved_window_bytes",
        "What an earlier connection found that the path carries in a round trip: the flows begin with careful resume \
         (RFC 9959), in the simulator.",
    ),
    ("flow[].saved_rtt_ms", "Round trip of that connection; needed with `saved_window_bytes`."),
    (
        "flow[].via",
        "Follows from `cc`: `direct`, the kernel's TCP from end to end, for `kernel:...`, `peer` for `peer:...`, \
         `external` for `external:...`, otherwise `proxy`.",
    ),
    ("flow[].connections", "Whether the flows share one tunnel connection, in the emulator."),
    ("flow[].direction", "`up` is from the client to the server, in the emulator."),
    ("flow[].change", "What is asked of the algorithm while it runs."),
    ("flow[].change[].at_s", "Time of the change."),
    ("flow[].change[].cc", "Algorithm that takes over while packets are in flight."),
    ("flow[].change[].parameters", "Its parameters, a table."),
    ("flow[].change[].share", "Share of the link that the algorithm is asked to strive for."),
    ("flow[].change[].yield_above_mbps", "Rate above which the algorithm is asked to yield."),
    ("claim[].text", "The claim, in the paper's words."),
    ("claim[].source", "Where it is from."),
    (
        "claim[].reason",
        "Why it fails; shown only if it does. Such a failure does not change the exit status. `{value}`, `{FIGURE where ...}` \
         and `{fixed ...}` stand for values.",
    ),
    (
        "claim[].any_of",
        "Swept keys, or `cc`, of which it is enough that one value fulfils the conditions.",
    ),
    (
        "claim[].metric",
        "The figure that is compared ([results](results.md)); `link.jain` is one of the link.",
    ),
    (
        "claim[].where",
        "Cells and flows that are meant: swept keys, `cc` (label or algorithm), `group` (number of the `[[flow]]`) and \
         `flow` (number of the flow). A value must be equal; a list: one of these; `{ at_least, at_most }`: within.",
    ),
    ("claim[].ratio_to", "The figure is divided by another one. Either this or `minus`."),
    ("claim[].ratio_to.metric", "The other figure. Default: `metric` of the claim."),
    (
        "claim[].ratio_to.where",
        "Its cells and flows; what it does not name is as with the figure itself.",
    ),
    ("claim[].minus", "Another figure is subtracted (PSNR, in dB)."),
    ("claim[].minus.metric", "The other figure. Default: `metric` of the claim."),
    (
        "claim[].minus.where",
        "Its cells and flows; what it does not name is as with the figure itself.",
    ),
    ("claim[].at_least", "Lower bound. At least one of the two bounds is needed."),
    ("claim[].at_most", "Upper bound."),
    (
        "claim[].over_flows",
        "How the flows of one label in a run become one value; `each` judges them one by one.",
    ),
    ("claim[].over_repeats", "How the repeats become one value."),
    (
        "claim[].and",
        "Further conditions, with the keys of the claim from `metric` on; `where` is the claim's unless it has its own.",
    ),
];
