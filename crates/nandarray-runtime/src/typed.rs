//! The check that a program gets what its metadata declare, whichever door a request comes through: NVMe, a call of
//! Python, a modelled device.
//!
//! An array has a type, and it must be the one that the port declares, unless the program takes plain bytes. Bytes of
//! the caller, and elements that have a size alone (blocks of a namespace), have no type: they must be whole elements.

use nandarray::{Compound, SpaceId};
use nandarray_cores::{ElementType, InputPort, Metadata, OutputPort};

use crate::error::{Error, Result};
use crate::request::{Input, Output, StageRequest};

/// Checks inputs, outputs and scalars of a stage. `earlier` are the metadata of the run's programs, in their order.
/// Returns all scalars, where those that the request lacks have their defaults.
///
/// # Errors
/// [`Error::Engine`]: one of them is not what the program's metadata declare.
pub(crate) fn typed(
    compound: &Compound<'_>,
    metadata: &Metadata,
    stage: &StageRequest<'_>,
    earlier: &[&Metadata],
) -> Result<Vec<u64>> {
    let name = &metadata.name;
    let invalid = |what: String| Err(Error::invalid(format!("program {name}: {what}")));
    // Their numbers are checked where the stage is cut into tasks.
    for (input, port) in stage.inputs.iter().zip(&metadata.inputs) {
        if let Err(what) = takes(compound, input, port, earlier)? {
            return invalid(what);
        }
    }
    for (output, port) in stage.outputs.iter().zip(&metadata.outputs) {
        if let Some(Output::Box { space, .. }) = output {
            if let Err(what) = goes(compound, *space, port)? {
                return invalid(what);
            }
        }
    }
    let (given, all) = (stage.scalars.len(), metadata.scalars.len());
    if given > all {
        return Err(Error::invalid(format!("{given} scalars for a program that takes {all}")));
    }
    let mut scalars = stage.scalars.to_vec();
    for port in &metadata.scalars[given..] {
        let Some(bits) = port.default_bits else {
            return invalid(format!("scalar {} is missing, and has no default", port.name));
        };
        scalars.push(bits);
    }
    Ok(scalars)
}

/// Returns the text of the type of a space's elements, and the type if the text is one.
fn element_of(compound: &Compound<'_>, space: SpaceId) -> Result<(String, Option<ElementType>)> {
    let dtype = compound.space(space)?.peek().record.dtype.clone();
    Ok((ElementType::shown(&dtype), ElementType::parse_text(&dtype)))
}

/// Checks an input; the inner error says in words what does not fit.
fn takes(
    compound: &Compound<'_>,
    input: &Input<'_>,
    port: &InputPort,
    earlier: &[&Metadata],
) -> Result<std::result::Result<(), String>> {
    let (name, wanted) = (&port.name, &port.element);
    let whole = |bytes: u64| match bytes.is_multiple_of(wanted.bytes()) {
        true => Ok(()),
        false => Err(format!("input {name} of {bytes} bytes is not whole elements of {}", wanted.bytes())),
    };
    let same = |found: Option<&ElementType>, shown: &str, what: &str| match wanted.takes(found) {
        true => Ok(()),
        false => Err(format!("input {name} takes {wanted}; {what} has {shown}")),
    };
    Ok(match input {
        Input::Bytes(bytes) => whole(bytes.len() as u64),
        Input::Box { space, count, .. } => {
            let (shown, found) = element_of(compound, *space)?;
            match &found {
                Some(found) if found.is_untyped() => {
                    let item = u64::from(compound.space(*space)?.peek().record.item_bytes);
                    whole(count.iter().fold(item, |all, n| all.saturating_mul(*n)))
                }
                found => same(found.as_ref(), &shown, "the array"),
            }
        }
        Input::Output { stage, output } => match earlier.get(*stage).and_then(|m| Some((m, m.outputs.get(*output)?))) {
            Some((program, given)) => {
                let what = format!("output {} of {}", given.name, program.name);
                same(Some(&given.element), &given.element.to_string(), &what)
            }
            // Refused where the stages of a run are checked against each other.
            None => Ok(()),
        },
    })
}

/// Checks the array that an output goes to.
fn goes(compound: &Compound<'_>, space: SpaceId, port: &OutputPort) -> Result<std::result::Result<(), String>> {
    let (shown, found) = element_of(compound, space)?;
    Ok(match port.element.fits(found.as_ref()) {
        true => Ok(()),
        false => Err(format!("output {} gives {}; the array has {shown}", port.name, port.element)),
    })
}
