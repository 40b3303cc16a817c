//! The admin API's messages, clients and servers, generated from `proto/coxswain/admin/v1` by `build.rs`.

#[expect(clippy::pedantic, clippy::large_enum_variant, reason = "generated code")]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages/coxswain.admin.v1.rs"));
}

#[expect(clippy::pedantic, reason = "generated code")]
mod servers {
    include!(concat!(env!("OUT_DIR"), "/servers/coxswain.admin.v1.rs"));
}

pub use messages::*;
pub use servers::*;

/// Describes the API to reflection: a serialized `FileDescriptorSet`, with its imports.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coxswain.admin.v1.bin"));
