use millrace_wire::Parsed;

use super::*;

/// The exchange that `head` begins, and the head that the origin gets.
fn begin(head: &str) -> (HttpExchange, Vec<u8>) {
    match http_forward::parse_request(head.as_bytes()) {
        Ok(Parsed::Complete { value, .. }) => (HttpExchange::new(&value), value.head),
        other => panic!("{other:?}"),
    }
}

fn get() -> (HttpExchange, Vec<u8>) {
    begin("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Sends `content` in pieces of `size`; what the origin gets of it.
fn send(exchange: &mut HttpExchange, head: &[u8], content: &[u8], size: usize) -> Vec<u8> {
    let input = [head, content].concat();
    let sent: Vec<_> =
        input.chunks(size).flat_map(|piece| exchange.on_request_bytes(piece)).collect();
    sent[head.len().min(sent.len())..].to_vec()
}

fn receive(exchange: &mut HttpExchange, response: &[u8], size: usize) -> Vec<u8> {
    response.chunks(size).flat_map(|it| exchange.on_response_bytes(it).into_owned()).collect()
}

fn text(answer: &[u8]) -> String {
    String::from_utf8(answer.to_vec()).unwrap()
}

fn answer(exchange: &HttpExchange) -> String {
    assert!(exchange.has_answer());
    text(&exchange.answer(ConnectFailure::Internal))
}

#[test]
fn nothing_behind_a_request_reaches_its_origin() {
    let second = b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n";
    for (fields, content) in [
        ("", ""),
        ("Content-Length: 5\r\n", "hello"),
        ("Content-Length: 0\r\n", ""),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let head = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        for size in 1..120 {
            let (mut exchange, start) = begin(&head);
            assert!(!exchange.is_request_complete());
            let input = [content.as_bytes(), second].concat();
            assert_eq!(send(&mut exchange, &start, &input, size), content.as_bytes());
            assert!(exchange.is_request_complete());
            assert!(!exchange.has_answer() && !exchange.is_broken());
        }
    }
}

#[test]
fn request_without_its_end_is_not_complete() {
    for (fields, content) in
        [("Content-Length: 5", "hell"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n")]
    {
        let head = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let (mut exchange, start) = begin(&head);
        send(&mut exchange, &start, content.as_bytes(), 3);
        assert!(!exchange.is_request_complete(), "{fields}");
    }
}

#[test]
fn malformed_chunks_are_answered_with_400_and_go_no_further() {
    let (mut exchange, start) =
        begin("POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let sent = send(&mut exchange, &start, b"5\r\nhelloGET http://b/ HTTP/1.1\r\n\r\n", 4);
    assert!(!text(&sent).contains("GET"), "{:?}", text(&sent));
    let answer = answer(&exchange);
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(exchange.on_response_bytes(b"HTTP/1.1 200 OK\r\n\r\n").is_empty());
    assert!(!exchange.is_broken());
}

#[test]
fn malformed_chunks_behind_the_response_break_the_exchange() {
    let (mut exchange, start) =
        begin("POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    exchange.on_request_bytes(&start);
    receive(&mut exchange, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", 7);
    assert!(exchange.is_answered());
    exchange.on_request_bytes(b"x\r\n");
    assert!(exchange.is_broken() && !exchange.has_answer());
}

#[test]
fn response_head_is_written_again_and_its_content_goes_on_as_it_is() {
    let content = b"\x00HTTP/1.1 404 Not Found\r\n\r\n";
    let head = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 26\r\n\r\n";
    let expected = [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\n"
            [..],
        content,
    ]
    .concat();
    let response = [&head[..], content].concat();
    for size in 1..=response.len() {
        let (mut exchange, _) = get();
        assert_eq!(receive(&mut exchange, &response, size), expected);
        assert!(exchange.is_answered() && !exchange.is_response_truncated());
        exchange.end_response();
        assert!(!exchange.has_answer());
    }
}

#[test]
fn interim_responses_go_to_clients_of_http_11_only() {
    let response = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                     HTTP/1.1 204 No Content\r\n\r\n";
    let last = "HTTP/1.1 204 No Content\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    for size in 1..=response.len() {
        let (mut exchange, _) = get();
        let before = receive(&mut exchange, &response[..30], size);
        assert!(!exchange.is_answered());
        let after = receive(&mut exchange, &response[30..], size);
        assert_eq!(text(&[before, after].concat()), format!("{interim}{last}"));
        let (mut exchange, _) = begin("GET http://a/ HTTP/1.0\r\n\r\n");
        assert_eq!(text(&receive(&mut exchange, response, size)), last);
    }
}

#[test]
fn client_of_http_10_gets_the_data_of_chunks() {
    let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for size in 1..=response.len() {
        let (mut exchange, _) = begin("GET http://a/ HTTP/1.0\r\n\r\n");
        let got = text(&receive(&mut exchange, response, size));
        assert_eq!(got, "HTTP/1.1 200 OK\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\nhello");
        assert!(!exchange.is_response_truncated());
        let (mut exchange, _) = begin("GET http://a/ HTTP/1.0\r\n\r\n");
        receive(&mut exchange, &response[..response.len() - 2], size);
        assert!(exchange.is_response_truncated());
    }
    let (mut exchange, _) = begin("HEAD http://a/ HTTP/1.0\r\n\r\n");
    receive(&mut exchange, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 9);
    assert!(exchange.is_answered() && !exchange.is_response_truncated());
}

#[test]
fn origin_without_a_response_is_a_bad_gateway() {
    for response in ["", "HTTP/1.1 200", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let (mut exchange, _) = get();
        receive(&mut exchange, response.as_bytes(), 5);
        exchange.end_response();
        let answer = answer(&exchange);
        assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
        assert!(answer.contains("error=connection_terminated\r\n"), "{answer}");
    }
    for response in ["SSH-2.0-x\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "\r\n"] {
        let (mut exchange, _) = get();
        assert_eq!(receive(&mut exchange, response.as_bytes(), 5), b"");
        let answer = answer(&exchange);
        assert!(answer.contains("error=http_protocol_error\r\n"), "{answer}");
    }
}

#[test]
fn answer_to_a_head_request_has_no_content() {
    let (mut exchange, _) = begin("HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let refused = text(&exchange.answer(ConnectFailure::Refused));
    assert!(refused.starts_with("HTTP/1.1 502 ") && refused.ends_with("\r\n\r\n"), "{refused}");
    exchange.end_response();
    assert!(answer(&exchange).ends_with("\r\n\r\n"));
}

#[test]
fn restarted_exchange_takes_its_request_from_the_start() {
    let (mut exchange, start) =
        begin("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(send(&mut exchange, &start, b"hel", 4), b"hel");
    let mut again = Box::new(exchange).restarted();
    assert_eq!(send(&mut again, &start, b"hello", 4), b"hello");
    assert!(again.is_request_complete());
}

#[test]
fn held_bytes_are_bounded() {
    let (mut exchange, _) = get();
    let endless = vec![b'x'; 1000];
    exchange.on_response_bytes(b"HTTP/1.1 200 OK\r\nX: ");
    for _ in 0..100 {
        exchange.on_response_bytes(&endless);
        assert!(exchange.held_bytes() <= 2 * http_forward::MAX_RESPONSE_HEAD_BYTES);
    }
    assert!(answer(&exchange).starts_with("HTTP/1.1 502 "));
}
