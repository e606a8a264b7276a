//! Fields of requests from `OTEL_EXPORTER_OTLP_HEADERS`.

use anyhow::bail;
use millrace_config::HeaderFields;
use percent_encoding::percent_decode_str;

/// The variable, as the OpenTelemetry specification names it.
pub(crate) const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Adds the fields of the variable's text, `NAME=VALUE,NAME=VALUE` with percent-encoded values.
///
/// # Errors
/// The text has another form. The error does not show it: it is a secret.
pub(crate) fn add_headers(fields: &mut HeaderFields, text: &str) -> anyhow::Result<()> {
    for (index, pair) in text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
        let is_added = pair.split_once('=').is_some_and(|(name, value)| {
            let value = percent_decode_str(value).decode_utf8();
            value.is_ok_and(|value| fields.add(name.trim(), &value))
        });
        if !is_added {
            bail!(
                "{HEADERS_VARIABLE}: entry {} must be NAME=VALUE, as Authorization=Bearer%20TOKEN",
                index + 1
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_has_percent_encoded_fields() {
        let mut fields = HeaderFields::default();
        add_headers(&mut fields, "Authorization=Bearer%20a%3D%3D, x-tenant = 7,").unwrap();
        let expected = [("authorization", "Bearer a=="), ("x-tenant", "7")];
        assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
        add_headers(&mut fields, "").unwrap();
    }

    #[test]
    fn malformed_variable_is_refused_and_not_shown() {
        for text in ["secret", "a=b,secret", "a b=secret", "=secret", "a=secret%0d%0ab", "a=%ff"] {
            let error = add_headers(&mut HeaderFields::default(), text).unwrap_err().to_string();
            assert!(error.contains("NAME=VALUE") && !error.contains("secret"), "{error}");
        }
    }
}
