//! `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as programs in Go read them.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

use super::Proxy;

/// What the environment says of proxies. An upper-case name wins over the same in lower case.
#[derive(Default)]
pub(crate) struct Variables {
    https: Option<Variable>,
    http: Option<Variable>,
    spared: Vec<Spared>,
}

/// A variable that is set. What it holds is never shown: it may be a password.
struct Variable {
    name: &'static str,
    value: String,
}

/// Whom `NO_PROXY` spares the proxy.
#[derive(Debug, PartialEq, Eq)]
enum Spared {
    Everyone,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// All below a domain, which begins with a dot; with `itself` what it is called without the dot, too.
    Domain {
        below: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Variables {
    /// Those of this process.
    pub(crate) fn system() -> Self {
        Self::read(&|name| std::env::var(name).ok())
    }

    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            let set =
                |name| Some(Variable { name, value: variable(name).filter(|value| !value.is_empty())? });
            names.into_iter().find_map(set)
        };
        let spared = first(["NO_PROXY", "no_proxy"]).map(|held| held.value).unwrap_or_default();
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            spared: spared.split(',').filter_map(Spared::parse).collect(),
        }
    }

    /// The proxy to a server, if there is one, and the variable that names it.
    pub(crate) fn proxy_to(&self, server: &Uri) -> Result<Option<(&'static str, Proxy)>, String> {
        let is_plain = server.scheme_str() == Some("http");
        let Some(Variable { name, value }) = (if is_plain { &self.http } else { &self.https }) else {
            return Ok(None);
        };
        let with_scheme = if value.contains("://") { value.clone() } else { format!("http://{value}") };
        let proxy = Proxy::parse(&with_scheme).map_err(|why| format!("{name} {why}"))?;
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let port = server.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        let is_spared = is_own(&host) || self.spared.iter().any(|spared| spared.spares(&host, port));
        Ok((!is_spared).then_some((*name, proxy)))
    }
}

/// Nobody is asked the way to this machine.
fn is_own(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Spared {
    /// One of the list; `None` for what makes no sense, which is passed over.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Self::Everyone);
        }
        if let Ok(network) = text.parse() {
            return Some(Self::Network(network));
        }
        let (host, port) = match text.rsplit_once(':') {
            // More than one colon and no bracket: an address of IPv6.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse().ok()?))
            }
            _ => (text.as_str(), None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return Some(Self::Address(address, port));
        }
        let domain = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let itself = !domain.starts_with('.');
        let name = domain.trim_start_matches('.');
        (!name.is_empty()).then(|| Self::Domain { below: format!(".{name}"), itself, port })
    }

    fn spares(&self, host: &str, port: u16) -> bool {
        let address = || host.parse::<IpAddr>();
        let is_port = |of: &Option<u16>| of.is_none_or(|of| of == port);
        match self {
            Self::Everyone => true,
            Self::Network(network) => address().is_ok_and(|address| network.contains(&address)),
            Self::Address(spared, of) => is_port(of) && address().is_ok_and(|address| address == *spared),
            Self::Domain { below, itself, port: of } => {
                is_port(of) && (host.ends_with(below.as_str()) || (*itself && host == &below[1..]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Variables;

    fn read(variables: &[(&str, &str)]) -> Variables {
        Variables::read(&|name| {
            let (_, value) = variables.iter().find(|(set, _)| *set == name)?;
            Some((*value).to_owned())
        })
    }

    fn proxy(variables: &[(&str, &str)], server: &str) -> Option<(&'static str, String)> {
        let found = read(variables).proxy_to(&server.parse().unwrap()).unwrap();
        found.map(|(name, proxy)| (name, proxy.shown().to_owned()))
    }

    #[test]
    fn the_scheme_of_the_server_decides_which_variable_counts() {
        let both = [("HTTPS_PROXY", "https://a.test"), ("HTTP_PROXY", "http://b.test:3128")];
        assert_eq!(proxy(&both, "https://api.test"), Some(("HTTPS_PROXY", "a.test:443".to_owned())));
        assert_eq!(proxy(&both, "http://api.test"), Some(("HTTP_PROXY", "b.test:3128".to_owned())));
        assert_eq!(proxy(&both[1..], "https://api.test"), None);
        assert_eq!(proxy(&[], "https://api.test"), None);
        assert_eq!(proxy(&[("HTTPS_PROXY", "")], "https://api.test"), None);
        let cases = [("https_proxy", "c.test"), ("HTTPS_PROXY", "d.test")];
        assert_eq!(proxy(&cases, "https://api.test"), Some(("HTTPS_PROXY", "d.test:80".to_owned())));
        assert_eq!(proxy(&cases[..1], "https://api.test"), Some(("https_proxy", "c.test:80".to_owned())));
        let socks = [("HTTPS_PROXY", "socks5://u:p@e.test")];
        assert_eq!(proxy(&socks, "https://api.test"), Some(("HTTPS_PROXY", "e.test:1080".to_owned())));
    }

    #[test]
    fn who_is_spared_a_proxy() {
        for (spared, server, is_spared) in [
            ("", "https://api.test", false),
            ("", "https://localhost:6443", true),
            ("", "https://127.0.0.2:6443", true),
            ("", "https://[::1]:6443", true),
            ("*", "https://api.test", true),
            ("api.test", "https://api.test", true),
            ("API.test", "https://api.TEST", true),
            ("api.test", "https://sub.api.test", true),
            ("api.test", "https://myapi.test", false),
            (".test", "https://api.test", true),
            (".api.test", "https://api.test", false),
            ("*.api.test", "https://sub.api.test", true),
            ("other, api.test:6443 ", "https://api.test:6443", true),
            ("api.test:6443", "https://api.test", false),
            ("api.test:443", "https://api.test", true),
            ("api.test:port", "https://api.test", false),
            ("10.96.0.0/12", "https://10.96.0.1", true),
            ("10.96.0.0/12", "https://10.112.0.1", false),
            ("10.96.0.1", "https://10.96.0.1:6443", true),
            ("10.96.0.1:443", "https://10.96.0.1:6443", false),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:443", "https://[fd00::1]:6443", false),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("fd00::/8", "https://[fd00::1]", true),
            (",,.,", "https://api.test", false),
        ] {
            let variables = [("HTTPS_PROXY", "proxy.test"), ("NO_PROXY", spared)];
            assert_eq!(proxy(&variables, server).is_none(), is_spared, "{spared:?} {server}");
        }
    }

    #[test]
    fn what_is_wrong_names_the_variable_and_quotes_nothing() {
        for (value, expected) in [
            ("ftp://u:s3cret@proxy.test", "HTTPS_PROXY must begin with http://, https:// or socks5://"),
            ("u:s3cret @proxy.test", "HTTPS_PROXY is not a URL"),
            ("https://u:s3cret@", "HTTPS_PROXY "),
        ] {
            let wrong = read(&[("HTTPS_PROXY", value)]).proxy_to(&"https://api.test".parse().unwrap());
            let said = wrong.err().unwrap();
            assert!(said.starts_with(expected) && !said.contains("s3cret"), "{said}");
        }
    }
}
