//! Messages as JSON and YAML, by the descriptors of the API: complete whatever fields it has, with the names that
//! the JSON mapping of protocol buffers gives them.
//!
//! Two choices that the mapping leaves open: fields at their defaults are there, so that scripts find what they look
//! for, and 64-bit integers are numbers, so that they can be compared.

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

use super::Format;
use crate::admin::proto;
use crate::cli::error::CliError;

/// The package of all messages.
const PACKAGE: &str = "coxswain.admin.v1";

fn pool() -> Result<&'static DescriptorPool, CliError> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET)
            .map_err(|error| format!("decode the API's descriptors: {error}"))
    });
    pool.as_ref().map_err(|error| CliError::Encoding(error.clone()))
}

/// A message, by its name in the proto files, as JSON.
pub(in crate::cli) fn value<M: Message>(name: &str, message: &M) -> Result<Value, CliError> {
    let wrong = |why: String| CliError::Encoding(format!("print {name}: {why}"));
    let descriptor = pool()?
        .get_message_by_name(&format!("{PACKAGE}.{name}"))
        .ok_or_else(|| wrong("no such message in the API's descriptors".to_owned()))?;
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).map_err(|error| wrong(error.to_string()))?;
    let options = SerializeOptions::new().skip_default_fields(false).stringify_64_bit_integers(false);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| wrong(error.to_string()))
}

/// One answer, in this form.
pub(in crate::cli) fn document<M: Message>(
    format: Format,
    name: &str,
    message: &M,
) -> Result<String, CliError> {
    let value = value(name, message)?;
    match format {
        Format::Yaml => yaml(&value),
        _ => serde_json::to_string_pretty(&value)
            .map(|text| text + "\n")
            .map_err(|error| CliError::Encoding(error.to_string())),
    }
}

/// One message of a stream, in this form: a line of JSON, or a document of YAML.
pub(in crate::cli) fn item<M: Message>(format: Format, name: &str, message: &M) -> Result<String, CliError> {
    let value = value(name, message)?;
    match format {
        Format::Yaml => Ok(format!("---\n{}", yaml(&value)?)),
        _ => Ok(format!("{value}\n")),
    }
}

fn yaml(value: &Value) -> Result<String, CliError> {
    serde_yaml_ng::to_string(value).map_err(|error| CliError::Encoding(error.to_string()))
}
