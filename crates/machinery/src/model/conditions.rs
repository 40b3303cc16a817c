//! Conditions in the bytes of an object: those that changed are spliced, everything else stays as it is.
//!
//! Kinds differ in the numbers of a condition's fields, and in which fields there are: [`ConditionFields`] is looked up in
//! the kind's messages.

use crate::wire::splice::{get, put_bytes, put_varint_field, replace_fields};
use crate::wire::text::raw_bytes;
use crate::wire::{FieldRow, Message, MessageRow, Reader, Time, Value, WireError};

/// Where a kind has its conditions, and what is where in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionFields {
    /// `status` of the object, and `conditions` of the status.
    list: (u32, u32),
    kind: u32,
    status: u32,
    last_transition_time: u32,
    reason: u32,
    message: u32,
    /// `lastUpdateTime`, or `lastProbeTime`.
    checked: Option<u32>,
    observed_generation: Option<u32>,
}

impl ConditionFields {
    /// Those of the kind of which `M` is the message.
    ///
    /// # Panics
    /// When its messages declare none. It is called while the program is compiled.
    #[expect(clippy::panic, reason = "it is evaluated while the program is compiled, and fails the build")]
    pub const fn of<M: Message>() -> Self {
        let status = required(M::ROW, "status");
        let conditions = match status.message {
            Some(within) => required(within, "conditions"),
            None => panic!("the status is not declared"),
        };
        let Some(condition) = conditions.message else { panic!("the condition is not declared") };
        let checked = match condition.field("lastUpdateTime") {
            Some(field) => Some(field),
            None => condition.field("lastProbeTime"),
        };
        Self {
            list: (status.number, conditions.number),
            kind: required(condition, "type").number,
            status: required(condition, "status").number,
            last_transition_time: required(condition, "lastTransitionTime").number,
            reason: required(condition, "reason").number,
            message: required(condition, "message").number,
            checked: number(checked),
            observed_generation: number(condition.field("observedGeneration")),
        }
    }
}

#[expect(clippy::panic, reason = "it is evaluated while the program is compiled, and fails the build")]
const fn required(message: &'static MessageRow, name: &str) -> &'static FieldRow {
    match message.field(name) {
        Some(field) => field,
        None => panic!("a field of conditions is not declared"),
    }
}

const fn number(field: Option<&'static FieldRow>) -> Option<u32> {
    match field {
        Some(field) => Some(field.number),
        None => None,
    }
}

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
    /// When it was looked at last, of kinds whose conditions say so; what is there stays if `None`.
    pub checked: Option<Time>,
    /// The generation that it speaks of, of kinds whose conditions say so; what is there stays if `None`.
    pub generation: Option<i64>,
}

/// `object` whose conditions say what is `said`. One that is there is edited where it is, one that is not is appended.
///
/// # Errors
/// The object is malformed.
pub fn set(object: &[u8], fields: &ConditionFields, said: &[Said]) -> Result<Vec<u8>, WireError> {
    let (status, conditions) = fields.list;
    let mut held = Reader::new(object);
    let mut out = Vec::with_capacity(object.len() + 256 * said.len());
    let mut written = false;
    while let Some((number, value, raw)) = held.next_raw()? {
        if number == status && !written {
            written = true;
            put_bytes(&mut out, status, &within(value.bytes()?, conditions, fields, said)?);
        } else {
            out.extend_from_slice(raw);
        }
    }
    if !written {
        put_bytes(&mut out, status, &within(&[], conditions, fields, said)?);
    }
    Ok(out)
}

/// The fields of a status whose conditions say what is `said`.
fn within(
    held: &[u8],
    conditions: u32,
    fields: &ConditionFields,
    said: &[Said],
) -> Result<Vec<u8>, WireError> {
    let mut new: Vec<&Said> = said.iter().collect();
    let mut out = Vec::with_capacity(held.len() + 256 * said.len());
    let mut reader = Reader::new(held);
    while let Some((number, value, raw)) = reader.next_raw()? {
        let of_this_kind = if number == conditions {
            let kind = get(value.bytes()?, &[fields.kind])?.map(Value::text).transpose()?;
            // Linear: a controller says a handful of conditions.
            new.iter().position(|each| Some(each.kind) == kind.as_deref())
        } else {
            None
        };
        match of_this_kind {
            Some(at) => put_bytes(&mut out, conditions, &over(value.bytes()?, fields, new.remove(at))?),
            None => out.extend_from_slice(raw),
        }
    }
    for each in new {
        put_bytes(&mut out, conditions, &over(&[], fields, each)?);
    }
    Ok(out)
}

/// A condition with what is said in place of what it said.
fn over(held: &[u8], fields: &ConditionFields, said: &Said) -> Result<Vec<u8>, WireError> {
    let bytes = |number, content: &[u8]| {
        let mut out = Vec::with_capacity(content.len() + 4);
        put_bytes(&mut out, number, content);
        (number, out)
    };
    let time = |number, time: Time| {
        let mut content = Vec::with_capacity(12);
        time.encode_fields(&mut content);
        bytes(number, &content)
    };
    let mut new = vec![
        bytes(fields.kind, said.kind.as_bytes()),
        bytes(fields.status, said.status.as_bytes()),
        time(fields.last_transition_time, said.since),
        bytes(fields.reason, said.reason.as_bytes()),
        bytes(fields.message, &raw_bytes(&said.message)),
    ];
    new.extend(fields.checked.zip(said.checked).map(|(number, at)| time(number, at)));
    new.extend(fields.observed_generation.zip(said.generation).map(|(number, generation)| {
        let mut out = Vec::with_capacity(12);
        put_varint_field(&mut out, number, generation as u64);
        (number, out)
    }));
    replace_fields(held, &new)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::api::autoscaling::HorizontalPodAutoscaler;
    use crate::api::batch::Job;
    use crate::api::certificates::CertificateSigningRequest;
    use crate::api::meta::Condition;
    use crate::api::networking::{ServiceCidr, ServiceCidrStatus};
    use crate::wire::splice::{Edit, edit};

    const CIDR: ConditionFields = ConditionFields::of::<ServiceCidr>();

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
        let mut bytes = edit(&object.to_bytes(), &[Edit::SetBytes(&[3], status)]).unwrap();
        put_varint_field(&mut bytes, 77, 5);

        let said = |kind, message: &str| Said {
            kind,
            status: "True",
            reason: "",
            message: message.into(),
            since: Time::from_seconds(9).unwrap(),
            checked: Time::from_seconds(10),
            generation: None,
        };
        let set = set(&bytes, &CIDR, &[said("New", "new"), said("Ready", "yes")]).unwrap();
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
            checked: None,
            generation: None,
        };
        let set = set(&[], &CIDR, &[said]).unwrap();
        let read = ServiceCidr::decode(&Bytes::from(set)).unwrap();
        assert_eq!(read.status.conditions[0].r#type, "Ready");
        assert!(super::set(&[0xff], &CIDR, &[]).is_err());
    }

    /// Each kind's message reads back what was written by its own numbers.
    #[test]
    fn kinds_differ_in_the_numbers_of_their_fields() {
        fn written<M: Message>(said: &Said) -> M {
            let object = set(&[], &ConditionFields::of::<M>(), std::slice::from_ref(said)).unwrap();
            // Written over once more, it is still one.
            let object = set(&object, &ConditionFields::of::<M>(), std::slice::from_ref(said)).unwrap();
            M::decode(&Bytes::from(object)).unwrap()
        }
        let said = Said {
            kind: "Approved",
            status: "True",
            reason: "Because",
            message: "It is so".to_owned(),
            since: Time::from_seconds(5).unwrap(),
            checked: Time::from_seconds(6),
            generation: Some(7),
        };
        let time = |seconds| Time::from_seconds(seconds);
        macro_rules! says {
            ($object:expr) => {{
                let object = $object;
                let [held] = object.status.conditions.as_slice() else { panic!("one condition") };
                assert_eq!((held.r#type.as_str(), held.status.as_str()), ("Approved", "True"));
                assert_eq!((held.reason.as_str(), held.message.as_str()), ("Because", "It is so"));
                assert_eq!(held.last_transition_time, time(5));
                held.clone()
            }};
        }
        assert_eq!(says!(written::<ServiceCidr>(&said)).observed_generation, 7);
        assert_eq!(says!(written::<CertificateSigningRequest>(&said)).last_update_time, time(6));
        assert_eq!(says!(written::<Job>(&said)).last_probe_time, time(6));
        assert_eq!(says!(written::<HorizontalPodAutoscaler>(&said)).r#type, "Approved");
    }
}
