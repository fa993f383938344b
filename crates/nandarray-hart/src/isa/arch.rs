//! Architecture strings such as `rv64imafdc_zba` or `rv32i2p1_m2p0`: parses the register width and the extensions that
//! they name.

use super::{Extension, Extensions};

/// Returns the extensions that a name in an architecture string includes; `None` if it is not supported.
fn named(name: &str) -> Option<&'static [Extension]> {
    use Extension::*;
    Some(match name {
        "i" | "zicntr" | "zihpm" => &[],
        "g" => &[M, A, F, D, Zicsr, Zifencei],
        "m" | "zmmul" => &[M],
        "a" | "zaamo" | "zalrsc" => &[A],
        "f" => &[F],
        "d" => &[F, D],
        "c" | "zca" => &[C],
        "zcf" => &[C, F],
        "zcd" => &[C, F, D],
        "b" => &[Zba, Zbb, Zbs],
        "zicsr" => &[Zicsr],
        "zifencei" => &[Zifencei],
        "zba" => &[Zba],
        "zbb" => &[Zbb],
        "zbs" => &[Zbs],
        "zve32x" => &[Zve32x],
        "zve32f" => &[Zve32x, Zve32f],
        "zve64x" => &[Zve32x, Zve64x],
        "zve64f" => &[Zve32x, Zve32f, Zve64x],
        "zve64d" => &[Zve32x, Zve32f, Zve64x, Zve64d],
        "v" => &[Zve32x, Zve32f, Zve64x, Zve64d, V],
        "xvarve" => &[Zve32x, Zve64x, Varve],
        // The least length of a vector register is not an extension of its own.
        _ if zvl(name).is_some() => &[],
        _ => return None,
    })
}

/// Parses the number of bits in a name such as `zvl128b`; `None` for another name or an unsupported length.
fn zvl(name: &str) -> Option<u32> {
    let bits = name.strip_prefix("zvl")?.strip_suffix('b')?.parse().ok()?;
    matches!(bits, 32 | 64 | 128 | 256 | 512 | 1024).then_some(bits)
}

/// Removes a version such as `2p1` from the beginning of `text`.
fn without_version(text: &str) -> &str {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let major = digits(text);
    let minor = text[major..].strip_prefix('p').map_or(0, digits);
    if major > 0 && minor > 0 { &text[major + 1 + minor..] } else { &text[major..] }
}

impl Extensions {
    /// Parses the register width (32 or 64) and the extensions of an architecture string.
    ///
    /// # Errors
    /// The first name that is not supported, or the whole text if it is not an architecture string.
    pub fn parse(arch: &str) -> Result<(u32, Self), String> {
        let (bits, names) = match (arch.strip_prefix("rv64"), arch.strip_prefix("rv32")) {
            (Some(names), _) => (64, names),
            (_, Some(names)) => (32, names),
            _ => return Err(arch.to_owned()),
        };
        let mut found = Self(1);
        let mut add = |name: &str| -> Result<(), String> {
            let extensions = named(name).ok_or_else(|| name.to_owned())?;
            found = extensions.iter().fold(found, |all, extension| all.with(*extension));
            Ok(())
        };
        if !names.starts_with(['i', 'g']) {
            return Err(arch.to_owned());
        }
        for part in names.split('_') {
            if part.len() > 1 && part.starts_with(['z', 's', 'x']) {
                let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
                let before = name.strip_suffix('p').filter(|n| n.ends_with(|c: char| c.is_ascii_digit()));
                add(before.map_or(name, |n| n.trim_end_matches(|c: char| c.is_ascii_digit())))?;
                continue;
            }
            let mut rest = part;
            while let Some(letter) = rest.chars().next() {
                add(&rest[..letter.len_utf8()])?;
                rest = without_version(&rest[letter.len_utf8()..]);
            }
        }
        // The length of vector registers follows from names such as `zvl128b`, from `v`, or from the width of the
        // elements.
        let by_extension = [(Extension::V, 128), (Extension::Zve64x, 64), (Extension::Zve32x, 32)];
        let least = by_extension.into_iter().find(|(extension, _)| found.has(*extension)).map_or(0, |(_, bits)| bits);
        let named = names.split('_').filter_map(|part| zvl(&part[..part.find('b').map_or(0, |at| at + 1)]));
        Ok((bits, if least > 0 { found.with_vlen(named.fold(least, u32::max)) } else { found }))
    }

    /// Returns the extensions of this set that are not in `other`, in the order of their declaration.
    pub fn beyond(self, other: Self) -> impl Iterator<Item = Extension> {
        Extension::ALL.into_iter().filter(move |e| self.has(*e) && !other.has(*e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_name_extensions() {
        let of = |arch: &str| Extensions::parse(arch).map(|(bits, set)| (bits, set.beyond(Extensions(0)).collect()));
        use Extension::*;
        assert_eq!(of("rv64i"), Ok((64, vec![I])));
        assert_eq!(of("rv32imc"), Ok((32, vec![I, M, C])));
        assert_eq!(of("rv64gc"), Ok((64, vec![I, M, A, F, D, C, Zicsr, Zifencei])));
        assert_eq!(of("rv64imac_zba_zbb_zbs"), Ok((64, vec![I, M, A, C, Zba, Zbb, Zbs])));
        assert_eq!(of("rv32i2p1_m2p0_zicsr2p0_zmmul1p0"), Ok((32, vec![I, M, Zicsr])));
        assert_eq!(of("rv64i2p1m2"), Ok((64, vec![I, M])));
        assert_eq!(of("rv64iv"), Ok((64, vec![I, Zve32x, Zve32f, Zve64x, Zve64d, V])));
        assert_eq!(of("rv32i_zve32f_zvl64b1p0"), Ok((32, vec![I, Zve32x, Zve32f])));
        let vlens = ["rv64gc", "rv32i_zve32x", "rv64gcv", "rv64i2p1_v1p0_zvl256b1p0", "rv64i_zve64x_zvl1024b"];
        assert_eq!(vlens.map(|arch| Extensions::parse(arch).unwrap().1.vlen()), [128, 32, 128, 256, 1024]);
        for (wrong, says) in [
            ("rv128i", "rv128i"),
            ("", ""),
            ("rv64", "rv64"),
            ("rv64v", "rv64v"),
            ("rv64iw", "w"),
            ("rv64i_zvl100b1p0", "zvl100b"),
            ("rv64i_zfh", "zfh"),
            ("rv64i\u{e4}", "\u{e4}"),
        ] {
            assert_eq!(Extensions::parse(wrong), Err(says.to_owned()), "{wrong}");
        }
    }
}
