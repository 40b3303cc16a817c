//! In which form metrics are given out, and how a scraper's wishes decide on it (RFC 9110, "Accept").

use http::HeaderMap;
use http::header::ACCEPT;

use super::openmetrics;
use super::registry::Registry;
use super::text::{TEXT_CONTENT_TYPE, encode_text};

/// A form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus' text format, version 0.0.4: what is given out unless something else is asked for.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl ExpositionFormat {
    /// The form that a request asks for: of those that there are, the one that it gives the most weight; the text format
    /// where it gives them the same, or knows none of them.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut text, mut open_metrics) = (Weight::default(), Weight::default());
        for range in ranges.flat_map(|value| value.split(',')).filter_map(Range::parse) {
            text.offer(range.matches_text(), range.weight);
            open_metrics.offer(range.matches_open_metrics(), range.weight);
        }
        if open_metrics.value > text.value { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => TEXT_CONTENT_TYPE,
            Self::OpenMetrics => OPEN_METRICS_CONTENT_TYPE,
        }
    }

    /// All metrics of a registry in this form.
    pub fn encode(self, registry: &Registry) -> String {
        match self {
            Self::Text => encode_text(registry),
            Self::OpenMetrics => openmetrics::encode(registry),
        }
    }
}

/// The weight of a form: that of the range that describes it best, in thousandths.
#[derive(Default)]
struct Weight {
    precision: u8,
    value: u16,
}

impl Weight {
    fn offer(&mut self, precision: Option<u8>, value: u16) {
        let Some(precision) = precision else { return };
        if (precision, value) > (self.precision, self.value) || precision > self.precision {
            *self = Self { precision, value };
        }
    }
}

/// One range of media types that a client takes.
struct Range<'a> {
    media: &'a str,
    version: Option<&'a str>,
    weight: u16,
}

impl<'a> Range<'a> {
    /// `None` if it can't be read.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| media.contains('/'))?;
        let mut range = Self { media, version: None, weight: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => {
                    let q = value.parse::<f64>().ok().filter(|q| (0.0..=1.0).contains(q))?;
                    range.weight = (q * 1000.0).round() as u16;
                }
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value),
                _ => {}
            }
        }
        Some(range)
    }

    fn is(&self, media: &str) -> bool {
        self.media.eq_ignore_ascii_case(media)
    }

    /// How precisely it describes the text format, if it does.
    fn matches_text(&self) -> Option<u8> {
        match (self.version, self.media) {
            (None | Some("0.0.4"), _) if self.is("text/plain") => Some(3),
            (None, _) if self.is("text/*") => Some(2),
            (None, "*/*") => Some(1),
            _ => None,
        }
    }

    /// How precisely it describes OpenMetrics. A client that takes anything does not ask for it.
    fn matches_open_metrics(&self) -> Option<u8> {
        match self.version {
            Some("1.0.0") if self.is(OPEN_METRICS) => Some(3),
            None if self.is(OPEN_METRICS) => Some(2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &[&str]) -> ExpositionFormat {
        let mut headers = HeaderMap::new();
        for each in accept {
            headers.append(ACCEPT, each.parse().unwrap());
        }
        ExpositionFormat::negotiate(&headers)
    }

    #[test]
    fn a_scraper_gets_what_it_gives_the_most_weight() {
        use ExpositionFormat::{OpenMetrics, Text};
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.8,\
            application/openmetrics-text;version=0.0.1;q=0.7,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/html"], Text),
            (&[prometheus_2], OpenMetrics),
            (&[prometheus_3], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.2"], OpenMetrics),
            (&["text/plain", "application/openmetrics-text"], Text),
            (&["text/plain;q=0.2", "application/openmetrics-text;q=0.3"], OpenMetrics),
            (&["application/openmetrics-text; version=1.0.0; q=0.1, text/plain; q=0.9"], Text),
            (&["application/openmetrics-text; q=0.4, */*; q=0.8"], Text),
            (&["application/openmetrics-text; q=0"], Text),
            (&["application/openmetrics-text; version=0.0.1"], Text),
            (&["application/openmetrics-text; version=2.0.0"], Text),
            (&["application/openmetrics-text; q=lots"], Text),
            (&["application/openmetrics-text; q=2", ";;,,="], Text),
            // What is said of all is not what is said of one.
            (&["*/*;q=0.9, text/plain;q=0.1, application/openmetrics-text;q=0.5"], OpenMetrics),
        ] {
            assert_eq!(negotiated(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn what_is_no_text_asks_for_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, http::HeaderValue::from_bytes(b"\xff/\xff").unwrap());
        assert_eq!(ExpositionFormat::negotiate(&headers), ExpositionFormat::Text);
    }
}
