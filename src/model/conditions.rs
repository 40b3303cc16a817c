//! Conditions in the bytes of an object: those that changed are spliced, everything else stays as it is.
//!
//! Conditions of all kinds have the same field numbers for their type, status, time, reason and message.

use crate::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use crate::wire::{Reader, Time, Value, WireError};

const TYPE: u32 = 1;
const STATUS: u32 = 2;
const LAST_TRANSITION_TIME: u32 = 4;
const REASON: u32 = 5;
const MESSAGE: u32 = 6;

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// For machines.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// When the status changed last.
    pub since: Time,
}

/// `object` whose conditions say what is `said`: list field `conditions` of its message field `status`. One that is
/// there is edited where it is, one that is not is appended.
///
/// # Errors
/// The object is malformed.
pub fn set(object: &[u8], status: u32, conditions: u32, said: &[Said]) -> Result<Vec<u8>, WireError> {
    let held = get(object, &[status])?.map(Value::bytes).transpose()?.unwrap_or_default();
    let mut new: Vec<&Said> = said.iter().collect();
    let mut out = Vec::with_capacity(held.len() + 256 * said.len());
    let mut fields = Reader::new(held);
    while let Some((number, value, raw)) = fields.next_raw()? {
        let of_this_kind = if number == conditions {
            let kind = get(value.bytes()?, &[TYPE])?.map(Value::text).transpose()?;
            new.iter().position(|each| Some(each.kind) == kind)
        } else {
            None
        };
        match of_this_kind {
            Some(at) => put_bytes(&mut out, conditions, &over(value.bytes()?, new.remove(at))?),
            None => out.extend_from_slice(raw),
        }
    }
    for each in new {
        put_bytes(&mut out, conditions, &over(&[], each)?);
    }
    edit(object, &[Edit::SetBytes(vec![status], out)])
}

/// A condition with what is said in place of what it said.
fn over(held: &[u8], said: &Said) -> Result<Vec<u8>, WireError> {
    let mut since = Vec::new();
    put_varint_field(&mut since, 1, said.since.seconds() as u64);
    let text = |field, text: &str| Edit::SetBytes(vec![field], text.as_bytes().to_vec());
    let edits = [
        text(TYPE, said.kind),
        text(STATUS, said.status),
        Edit::SetBytes(vec![LAST_TRANSITION_TIME], since),
        text(REASON, said.reason),
        text(MESSAGE, &said.message),
    ];
    edit(held, &edits)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::api::meta::Condition;
    use crate::api::networking::{ServiceCidr, ServiceCidrStatus};
    use crate::wire::Message;

    fn held(kind: &str) -> Condition {
        Condition { r#type: kind.into(), status: "Unknown".into(), ..Condition::default() }
    }

    #[test]
    fn a_condition_changes_where_it_is_and_all_else_stays() {
        let status = ServiceCidrStatus { conditions: vec![held("A"), held("Ready"), held("B")] };
        let mut object = ServiceCidr { status, ..ServiceCidr::default() };
        object.metadata.name = "it".into();
        // An unknown field of the condition (its observed generation), of the status and of the object.
        let mut ready = held("Ready").to_bytes();
        put_varint_field(&mut ready, 3, 7);
        let mut status = Vec::new();
        for each in [held("A").to_bytes(), ready, held("B").to_bytes()] {
            put_bytes(&mut status, 1, &each);
        }
        put_varint_field(&mut status, 99, 1);
        let mut bytes = edit(&object.to_bytes(), &[Edit::SetBytes(vec![3], status)]).unwrap();
        put_varint_field(&mut bytes, 77, 5);

        let said = |kind, message: &str| Said {
            kind,
            status: "True",
            reason: "",
            message: message.into(),
            since: Time::from_seconds(9).unwrap(),
        };
        let set = set(&bytes, 3, 1, &[said("New", "new"), said("Ready", "yes")]).unwrap();
        let read = ServiceCidr::decode(&Bytes::from(set.clone())).unwrap();
        let kinds: Vec<&str> = read.status.conditions.iter().map(|each| each.r#type.as_str()).collect();
        assert_eq!(kinds, ["A", "Ready", "B", "New"]);
        let ready = &read.status.conditions[1];
        assert_eq!((ready.status.as_str(), ready.message.as_str()), ("True", "yes"));
        assert_eq!(ready.last_transition_time.map(Time::seconds), Some(9));
        assert_eq!(read.metadata.name, "it");
        let unknown = |path: &[u32]| get(&set, path).unwrap().map(|value| value.varint().unwrap());
        assert_eq!((unknown(&[77]), unknown(&[3, 99])), (Some(5), Some(1)));
        let raw = get(&set, &[3]).unwrap().unwrap().bytes().unwrap();
        let mut fields = Reader::new(raw);
        let generation = std::iter::from_fn(|| fields.next_field().unwrap())
            .filter(|(number, _)| *number == 1)
            .find_map(|(_, value)| get(value.bytes().unwrap(), &[3]).unwrap());
        assert_eq!(generation.unwrap().varint().unwrap(), 7);
    }

    #[test]
    fn an_object_without_a_status_gets_one() {
        let said = Said {
            kind: "Ready",
            status: "True",
            reason: "",
            message: String::new(),
            since: Time::from_seconds(1).unwrap(),
        };
        let set = set(&[], 3, 1, &[said]).unwrap();
        let read = ServiceCidr::decode(&Bytes::from(set)).unwrap();
        assert_eq!(read.status.conditions[0].r#type, "Ready");
        assert!(super::set(&[0xff], 3, 1, &[]).is_err());
    }
}
