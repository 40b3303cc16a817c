//! Addresses and ranges of addresses, as Kubernetes reads those of stored objects: leading zeros of a number are ignored, and an
//! IPv4-mapped IPv6 address is read as the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The number of 16-bit groups of an IPv6 address.
const GROUPS: usize = 8;
/// The bits in front of the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// Reads an address; `None` for a text that is no address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let is_ipv4 = text.find(['.', ':']).is_some_and(|at| text[at..].starts_with('.'));
    if is_ipv4 {
        parse_ipv4(text).map(Into::into)
    } else {
        parse_ipv6(text).map(|address| address.to_canonical())
    }
}

/// Reads a range such as `10.0.0.0/8`; `None` for a text that is no range. Host bits are cleared. A range of IPv4-mapped IPv6
/// addresses is read as the IPv4 range.
pub fn parse_range(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = parse_decimal(prefix)?;
    if let Some(address) = parse_ipv4(address) {
        return Some(Ipv4Net::new(address, prefix).ok()?.trunc().into());
    }
    let range = Ipv6Net::new(parse_ipv6(address)?, prefix).ok()?.trunc();
    match range.addr().to_ipv4_mapped() {
        Some(address) => Some(Ipv4Net::new(address, prefix.checked_sub(MAPPED_BITS)?).ok()?.into()),
        None => Some(range.into()),
    }
}

fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(parse_decimal);
    let mut octets = [0; 4];
    for octet in &mut octets {
        *octet = parts.next()??;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Reads a number without a sign. Leading zeros are ignored.
fn parse_decimal(text: &str) -> Option<u8> {
    // The library accepts a plus sign, too.
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// Reads an address as [`parse_address`] does, but refuses leading zeros of decimal numbers, and keeps an IPv4-mapped IPv6 address.
pub fn parse_strict_address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Reads a range as [`parse_range`] does, but refuses leading zeros of decimal numbers, and keeps a range of IPv4-mapped IPv6 addresses.
pub fn parse_strict_range(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let is_number = prefix == "0" || prefix.starts_with(|first: char| matches!(first, '1'..='9'));
    let prefix = prefix.parse().ok().filter(|_| is_number)?;
    IpNet::new(parse_strict_address(address)?, prefix).ok().map(|range| range.trunc())
}

fn parse_ipv6(text: &str) -> Option<Ipv6Addr> {
    // Nearly all addresses have the form that the library reads, without an allocation.
    text.parse().ok().or_else(|| parse_lenient_ipv6(text))
}

fn parse_lenient_ipv6(text: &str) -> Option<Ipv6Addr> {
    let mut groups = Vec::with_capacity(GROUPS);
    // The number of groups before `::`.
    let mut gap = None;
    let mut rest = text;
    if let Some(after) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = after;
    }
    while !rest.is_empty() {
        // Linear: each search begins where the last one ended.
        let end = rest.find(|char: char| !char.is_ascii_hexdigit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        if after.starts_with('.') {
            let [a, b, c, d] = parse_ipv4(rest)?.octets();
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            break;
        }
        let significant = digits.trim_start_matches('0');
        let group = if significant.is_empty() && !digits.is_empty() { "0" } else { significant };
        groups.push(u16::from_str_radix(group, 16).ok()?);
        if groups.len() > GROUPS {
            return None;
        }
        if after.is_empty() {
            break;
        }
        rest = after.strip_prefix(':').filter(|next| !next.is_empty())?;
        if let Some(next) = rest.strip_prefix(':') {
            if gap.replace(groups.len()).is_some() {
                return None;
            }
            rest = next;
        }
    }
    let missing = GROUPS.checked_sub(groups.len())?;
    match gap {
        // The gap stands for at least one group.
        Some(at) if missing > 0 => drop(groups.splice(at..at, vec![0; missing])),
        None if missing == 0 => {}
        _ => return None,
    }
    <[u16; GROUPS]>::try_from(groups).ok().map(Into::into)
}

#[cfg(test)]
mod differential;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form() {
        for (text, address) in [
            ("10.1.0.1", Some("10.1.0.1")),
            ("010.1.0.001", Some("10.1.0.1")),
            ("::ffff:10.0.0.010", Some("10.0.0.10")),
            ("::ffff:a00:1", Some("10.0.0.1")),
            ("FD00:0::0:00005", Some("fd00::5")),
            ("1:2:3:4:5:6:1.2.3.4", Some("1:2:3:4:5:6:102:304")),
            ("::", Some("::")),
            ("10.1.0", None),
            ("10.1.0.256", None),
            ("10.1.0.+1", None),
            ("1::8", Some("1::8")),
            ("1:2:3:4:5:6:7::", Some("1:2:3:4:5:6:7:0")),
            ("::2:3:4:5:6:7:8", Some("0:2:3:4:5:6:7:8")),
            ("1:2:3:4:5:6:7:8::", None),
            ("1:2:3:4:5:6:7:8:9", None),
            ("1:2:3:4:5:6:7:1.2.3.4", None),
            ("1:2:3:4:5:6::1.2.3.4", None),
            ("1::2::3", None),
            ("::10000", None),
            ("fe80::1%eth0", None),
            ("", None),
        ] {
            assert_eq!(parse_address(text).map(|ip| ip.to_string()).as_deref(), address, "{text}");
        }
    }

    #[test]
    fn ranges_are_read_without_bits_of_hosts() {
        for (text, range) in [
            ("10.1.2.3/16", Some("10.1.0.0/16")),
            ("010.1.2.3/016", Some("10.1.0.0/16")),
            ("fd00::1/64", Some("fd00::/64")),
            ("fd00::00001/064", Some("fd00::/64")),
            ("::ffff:10.1.2.3/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3/95", Some("::fffe:0:0/95")),
            ("10.1.2.3/33", None),
            ("10.1.2.3/+8", None),
            ("10.1.2.3/", None),
            ("10.1.2.3", None),
        ] {
            assert_eq!(parse_range(text).map(|range| range.to_string()).as_deref(), range, "{text}");
        }
    }

    #[test]
    fn strict_readings_refuse_zeros_in_front() {
        for (text, address) in [
            ("10.1.0.1", Some("10.1.0.1")),
            ("010.1.0.1", None),
            ("fd00::0005", Some("fd00::5")),
            ("fd00::00005", None),
            ("::ffff:10.0.0.1", Some("::ffff:10.0.0.1")),
            ("::ffff:10.0.0.01", None),
        ] {
            assert_eq!(parse_strict_address(text).map(|ip| ip.to_string()).as_deref(), address, "{text}");
        }
        for (text, range) in [
            ("10.96.0.1/12", Some("10.96.0.0/12")),
            ("010.96.0.0/12", None),
            ("10.96.0.0/012", None),
            ("10.0.0.0/08", None),
            ("10.96.0.0/+12", None),
            ("10.96.0.0/33", None),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("fd00::1/64", Some("fd00::/64")),
        ] {
            assert_eq!(parse_strict_range(text).map(|range| range.to_string()).as_deref(), range, "{text}");
        }
    }
}
