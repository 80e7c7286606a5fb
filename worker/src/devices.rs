//! Choice of OpenCL devices, and their self-test.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use accelerator::{Device, DeviceError, Tuning, devices};
use cli::memory::MemorySize;

/// The value of `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Every GPU that passes its self-test.
    Auto,
    /// The devices with these indices or parts of their names; none if empty.
    Chosen(Vec<String>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let chosen: Vec<_> = text.split(',').map(|one| one.trim().to_lowercase()).collect();
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Chosen(Vec::new())),
            _ if chosen.iter().any(String::is_empty) => {
                Err("expected auto, none, or indices or parts of names, separated by commas"
                    .to_owned())
            }
            _ => Ok(Self::Chosen(chosen)),
        }
    }
}

impl DeviceChoice {
    /// Opens and tests the chosen devices.
    ///
    /// # Errors
    /// If a device that was chosen by index or name does not pass, or there is none.
    pub fn open(&self, memory: Option<MemorySize>) -> Result<Vec<Arc<Device>>, String> {
        let chosen = match self {
            Self::Auto => return Ok(gpus(memory)),
            Self::Chosen(chosen) => chosen,
        };
        let mut indices = Vec::new();
        for one in chosen {
            indices.extend(match one.parse() {
                Ok(index) => vec![index],
                Err(_) => named(one)?,
            });
        }
        indices.sort_unstable();
        indices.dedup();
        let open = |index| {
            tested(index, memory).map_err(|error| {
                format!("device {index} cannot be used: {error}; see worker devices")
            })
        };
        indices.into_iter().map(open).collect()
    }
}

/// Returns the devices with this part, in lower case, of their names.
///
/// # Errors
/// If there is none.
fn named(part: &str) -> Result<Vec<usize>, String> {
    let has_part = |(index, device): (usize, Result<accelerator::Description, _>)| {
        device.is_ok_and(|device| device.name.to_lowercase().contains(part)).then_some(index)
    };
    let found: Vec<_> = devices().into_iter().enumerate().filter_map(has_part).collect();
    if found.is_empty() {
        return Err(format!("no OpenCL device has {part} in its name; see worker devices"));
    }
    Ok(found)
}

/// Opens and tests every GPU; logs why one is not used.
fn gpus(memory: Option<MemorySize>) -> Vec<Arc<Device>> {
    let mut passed = Vec::new();
    for (index, description) in devices().into_iter().enumerate() {
        let tested = match description {
            Ok(description) if description.is_cpu => continue,
            Ok(_) => tested(index, memory),
            Err(error) => Err(error),
        };
        match tested {
            Ok(device) => passed.push(device),
            Err(error) => tracing::warn!("device {index} is not used: {error}"),
        }
    }
    passed
}

/// Lists names of devices, with their number if several have one name.
pub fn list(devices: &[Arc<Device>]) -> String {
    listed(devices.iter().map(|device| device.name()))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut numbers = BTreeMap::new();
    names.for_each(|name| *numbers.entry(name).or_insert(0_u32) += 1);
    let listed = numbers.into_iter().map(|(name, number)| match number {
        1 => name.to_owned(),
        _ => format!("{number} × {name}"),
    });
    listed.collect::<Vec<_>>().join(", ")
}

/// Opens and tests a device.
///
/// # Errors
/// If it does not pass.
pub fn tested(index: usize, memory: Option<MemorySize>) -> Result<Arc<Device>, DeviceError> {
    let memory = memory.map(MemorySize::bytes);
    let device = Device::open(index, memory, Tuning::default())?;
    device.self_test()?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn devices_are_listed_by_name() {
        for (names, text) in [
            (&[][..], ""),
            (&["NVIDIA H100"], "NVIDIA H100"),
            (&["NVIDIA H100", "AMD MI300X", "NVIDIA H100"], "AMD MI300X, 2 × NVIDIA H100"),
        ] {
            assert_eq!(listed(names.iter().copied()), text);
        }
    }
}
