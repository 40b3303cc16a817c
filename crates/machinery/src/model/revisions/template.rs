//! The template in the document of a revision: the way back, from JSON to an encoded `PodTemplateSpec`.
//!
//! Members that are not in the table of [`shapes`] are passed over, `$patch` among them: a document replaces the whole template.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::api::apps::RawExtension;
use crate::api::meta::QuantityText;
use crate::model::quantity::Quantity;
use crate::model::template::shapes::{self, FieldShape, Holds, Presence, Shape};
use crate::wire::json::read_json;
use crate::wire::splice::{put_bytes, put_entry, put_varint_field};
use crate::wire::text::raw_bytes;
use crate::wire::{Field as _, IntOrString, Time, WallTime, field};

/// A document holds no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotATemplate {
    /// It is no JSON.
    #[error("the revision is not JSON: {0}")]
    NotJson(String),
    /// `spec.template` is missing.
    #[error("the revision has no spec.template")]
    Absent,
    /// A member is of another type.
    #[error("{0} has another type than in a pod template")]
    Mismatch(String),
}

/// Returns the bytes of a text in a document.
type BytesOf = fn(&str) -> Cow<'_, [u8]>;

/// The encoded template in a document.
///
/// # Errors
/// There is none in it.
pub fn template_of(document: &[u8]) -> Result<Vec<u8>, NotATemplate> {
    let document: Json = read_json(document).map_err(|error| NotATemplate::NotJson(error.to_string()))?;
    template_in(&document, |text| Cow::Borrowed(text.as_bytes()))
}

/// The encoded template in a document whose texts are in text form ([`crate::wire::text`]).
///
/// # Errors
/// There is none in it.
pub fn template_of_held(document: &Json) -> Result<Vec<u8>, NotATemplate> {
    template_in(document, raw_bytes)
}

fn template_in(document: &Json, bytes_of: BytesOf) -> Result<Vec<u8>, NotATemplate> {
    let template = document.get("spec").and_then(|spec| spec.get("template")).and_then(Json::as_object);
    encoded(template.ok_or(NotATemplate::Absent)?, shapes::POD_TEMPLATE, bytes_of)
}

fn encoded(members: &Map<String, Json>, shape: &Shape, bytes_of: BytesOf) -> Result<Vec<u8>, NotATemplate> {
    let mut out = Vec::new();
    for field in shape.fields {
        if let Holds::Flattened(inner) = field.holds {
            let inner = encoded(members, inner, bytes_of)?;
            if !inner.is_empty() {
                put_bytes(&mut out, field.number, &inner);
            }
        } else if let Some(value) = members.get(field.name).filter(|value| !value.is_null()) {
            put(field, value, bytes_of, &mut out).map_err(|error| error.within(shape, field))?;
        }
    }
    Ok(out)
}

/// Why a value cannot be that of a field.
enum Unfit {
    /// It is of another type.
    Here,
    /// Something in it is.
    Within(NotATemplate),
}

impl Unfit {
    fn within(self, shape: &Shape, field: &FieldShape) -> NotATemplate {
        match self {
            Self::Here => NotATemplate::Mismatch(format!("{}.{}", shape.name, field.name)),
            Self::Within(error) => error,
        }
    }
}

impl From<NotATemplate> for Unfit {
    fn from(error: NotATemplate) -> Self {
        Self::Within(error)
    }
}

fn put(field: &FieldShape, value: &Json, bytes_of: BytesOf, out: &mut Vec<u8>) -> Result<(), Unfit> {
    let number = field.number;
    let stays = |is_empty: bool| !is_empty || field.presence != Presence::NotEmpty;
    match field.holds {
        Holds::Text => {
            let text = value.as_str().ok_or(Unfit::Here)?;
            if stays(text.is_empty()) {
                put_bytes(out, number, &bytes_of(text));
            }
        }
        Holds::Int => {
            let held = integer(value)?;
            if stays(held == 0) {
                put_varint_field(out, number, held as u64);
            }
        }
        Holds::Bool => {
            let held = value.as_bool().ok_or(Unfit::Here)?;
            if stays(!held) {
                put_varint_field(out, number, u64::from(held));
            }
        }
        Holds::Texts => {
            for item in value.as_array().ok_or(Unfit::Here)? {
                put_bytes(out, number, &bytes_of(item.as_str().ok_or(Unfit::Here)?));
            }
        }
        Holds::Ints => {
            for item in value.as_array().ok_or(Unfit::Here)? {
                put_varint_field(out, number, integer(item)? as u64);
            }
        }
        Holds::Labels | Holds::Amounts => {
            for (key, value) in value.as_object().ok_or(Unfit::Here)? {
                let value = match field.holds {
                    Holds::Amounts => quantity(value)?,
                    _ => bytes_of(value.as_str().ok_or(Unfit::Here)?).into_owned(),
                };
                put_entry(out, number, &bytes_of(key), &value);
            }
        }
        Holds::Quantity => put_bytes(out, number, &quantity(value)?),
        Holds::Time => time(value)?.encode(number, out),
        Holds::IntOrString => int_or_string(value)?.encode(number, out),
        Holds::Json => {
            let mut raw = Vec::new();
            put_bytes(&mut raw, field!(RawExtension, raw), value.to_string().as_bytes());
            put_bytes(out, number, &raw);
        }
        Holds::Message(shape) | Holds::Flattened(shape) => {
            put_bytes(out, number, &encoded(value.as_object().ok_or(Unfit::Here)?, shape, bytes_of)?);
        }
        Holds::Messages(shape) => {
            for item in value.as_array().ok_or(Unfit::Here)? {
                put_bytes(out, number, &encoded(item.as_object().ok_or(Unfit::Here)?, shape, bytes_of)?);
            }
        }
    }
    Ok(())
}

/// An integer, be it written as the double nearest to one; the largest there is if it is larger.
fn integer(value: &Json) -> Result<i64, Unfit> {
    let rounded = |double: f64| double as i64;
    value.as_i64().or_else(|| value.as_f64().map(rounded)).ok_or(Unfit::Here)
}

/// A quantity in canonical form. (Other programs may have written it as a number.)
fn quantity(value: &Json) -> Result<Vec<u8>, Unfit> {
    let written = match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => return Err(Unfit::Here),
    };
    let canonical = written.parse::<Quantity>().map_or(written, |quantity| quantity.to_string());
    let mut out = Vec::with_capacity(canonical.len() + 2);
    put_bytes(&mut out, field!(QuantityText, string), canonical.as_bytes());
    Ok(out)
}

fn time(value: &Json) -> Result<Option<Time>, Unfit> {
    let at: WallTime = value.as_str().and_then(|text| text.parse().ok()).ok_or(Unfit::Here)?;
    Ok(Time::from_seconds(at.seconds()))
}

fn int_or_string(value: &Json) -> Result<Option<IntOrString>, Unfit> {
    let held = match value.as_str() {
        Some(text) => IntOrString::Str(text.into()),
        None => IntOrString::Int(integer(value)? as i32),
    };
    Ok(Some(held))
}
