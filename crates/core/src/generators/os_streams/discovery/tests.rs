//! Discovery of streams from images.

use serde_json::{Value, json};

use super::*;

fn image(digit: char) -> String {
    format!(
        "quay.example.com/release/os@sha256:{}",
        digit.to_string().repeat(64)
    )
}

fn tag(name: &str, digit: char, annotations: &Value) -> Value {
    json!({"name": name, "annotations": annotations, "from": {"kind": "DockerImage", "name": image(digit)}})
}

fn release(tags: &[Value]) -> ReleaseImages {
    let document = json!({
        "kind": "ImageStream", "apiVersion": "image.openshift.io/v1",
        "metadata": {"name": "4.21.0"}, "spec": {"tags": tags},
    });
    ReleaseImages::read(&document).unwrap()
}

fn labels(entries: &[(char, Value)]) -> ImageLabels {
    let mut labels = ImageLabels::default();
    for (digit, entry) in entries {
        let digest = format!("sha256:{}", digit.to_string().repeat(64));
        labels.read(&json!({"Digest": digest, "Labels": entry})).unwrap();
    }
    labels
}

fn os(stream: &str) -> Value {
    json!({"io.openshift.os.streamclass": stream, "containers.bootc": "1"})
}

fn extensions(stream: &str) -> Value {
    json!({"io.openshift.os.streamclass": stream, "io.openshift.os.extensions": "true"})
}

fn stream(name: &str, os: char, extensions: char) -> OSImageStreamImages {
    OSImageStreamImages {
        name: name.to_owned(),
        os_image: image(os),
        os_extensions_image: image(extensions),
    }
}

#[test]
fn the_labels_of_images_decide() {
    let none = json!({});
    let two = release(&[
        tag("rhel-coreos-10", '3', &none),
        tag("rhel-coreos-10-extensions", '4', &none),
        tag("rhel-coreos", '1', &none),
        tag("rhel-coreos-extensions", '2', &none),
        tag("machine-config-operator", '5', &none),
    ]);
    let cases = [
        (
            "two streams, by name",
            vec![
                ('1', os("rhel-9")),
                ('2', extensions("rhel-9")),
                ('3', os("rhel-10")),
                ('4', extensions("rhel-10")),
            ],
            vec![stream("rhel-10", '3', '4'), stream("rhel-9", '1', '2')],
        ),
        (
            "labels count more than names",
            vec![
                ('1', extensions("a")),
                ('2', os("a")),
                ('3', json!({})),
                ('4', json!({})),
            ],
            vec![stream("a", '2', '1')],
        ),
        (
            "bootc may also be true",
            vec![
                (
                    '1',
                    json!({"io.openshift.os.streamclass": "a", "containers.bootc": "True"}),
                ),
                ('2', extensions("a")),
                ('3', json!({})),
                ('4', json!({})),
            ],
            vec![stream("a", '1', '2')],
        ),
        (
            "half a stream is none",
            vec![
                ('1', os("rhel-9")),
                ('2', json!({"io.openshift.os.streamclass": "rhel-9"})),
                ('3', json!({})),
                ('4', extensions("rhel-10")),
            ],
            vec![],
        ),
        (
            "an unrelated image is ignored",
            vec![
                ('5', os("rhel-9")),
                ('1', json!({})),
                ('2', json!({})),
                ('3', json!({})),
                ('4', json!({})),
            ],
            vec![],
        ),
    ];
    for (name, known, expected) in cases {
        let found = discover(&[], Some(&two), &labels(&known));
        assert_eq!(found.streams, expected, "{name}: {:?}", found.left_out);
    }
}

#[test]
fn without_labels_the_releases_own_words_count() {
    let version = |version: &str| json!({"io.openshift.build.versions": format!("machine-os={version}")});
    let none = json!({});
    let cases = [
        (
            "the version of the operating system",
            vec![
                tag("rhel-coreos", '1', &version("9.6.20250514-0")),
                tag("rhel-coreos-extensions", '2', &none),
            ],
            vec![stream("rhel-9", '1', '2')],
        ),
        (
            "as older releases wrote it",
            vec![
                tag("rhel-coreos", '1', &version("418.94.202501071621-0")),
                tag("rhel-coreos-extensions", '2', &version("418.94.202501071621-0")),
            ],
            vec![stream("rhel-9", '1', '2')],
        ),
        (
            "a number in the name",
            vec![
                tag("rhel-coreos-10", '1', &none),
                tag("rhel-coreos-10-extensions", '2', &none),
            ],
            vec![stream("rhel-10", '1', '2')],
        ),
        (
            "another family",
            vec![
                tag("stream-coreos", '1', &version("10.0.20250514-0")),
                tag("stream-coreos-extensions", '2', &none),
            ],
            vec![stream("centos-10", '1', '2')],
        ),
        (
            "labels that the release repeats",
            vec![
                tag("rhel-coreos", '1', &json!({"io.openshift.os.streamclass": "a"})),
                tag("rhel-coreos-extensions", '2', &extensions("a")),
            ],
            vec![stream("a", '1', '2')],
        ),
        (
            "an image from the operating system's own repository",
            vec![
                tag(
                    "next-extensions",
                    '2',
                    &json!({
                        "io.openshift.os.streamclass": "a",
                        "io.openshift.build.source-location": "https://github.com/openshift/os",
                    }),
                ),
                tag("rhel-coreos", '1', &json!({"io.openshift.os.streamclass": "a"})),
            ],
            vec![stream("a", '1', '2')],
        ),
        (
            "nothing at all",
            vec![
                tag("rhel-coreos", '1', &none),
                tag("rhel-coreos-extensions", '2', &none),
            ],
            vec![],
        ),
    ];
    for (name, tags, expected) in cases {
        let found = discover(&[], Some(&release(&tags)), &ImageLabels::default());
        assert_eq!(found.streams, expected, "{name}: {:?}", found.left_out);
    }
}

#[test]
fn a_release_counts_more_than_images_named_beside_it() {
    let (one, two) = (image('1'), image('2'));
    let pair = Pair {
        os: &one,
        extensions: &two,
    };
    let known = labels(&[
        ('1', os("rhel-9")),
        ('2', extensions("rhel-9")),
        ('3', os("rhel-9")),
        ('4', extensions("rhel-9")),
    ]);
    let found = discover(&[pair], None, &known);
    assert_eq!(found.streams, [stream("rhel-9", '1', '2')]);
    let both = release(&[
        tag("rhel-coreos", '3', &json!({})),
        tag("rhel-coreos-extensions", '4', &json!({})),
    ]);
    let found = discover(&[pair], Some(&both), &known);
    assert_eq!(found.streams, [stream("rhel-9", '3', '4')]);
    let unlabelled = discover(&[pair], None, &ImageLabels::default());
    assert_eq!((unlabelled.streams.len(), unlabelled.left_out.len()), (0, 2));
}

#[test]
fn what_the_cluster_would_refuse_is_left_out_and_said() {
    let reasons = |os_image: &str, name: &str| {
        let mut document = tag("rhel-coreos", '1', &json!({"io.openshift.os.streamclass": name}));
        document["from"]["name"] = json!(os_image);
        let found = discover(&[], Some(&release(&[document])), &ImageLabels::default());
        found.left_out.iter().map(|one| one.why).collect::<Vec<_>>()
    };
    let good = image('1');
    assert_eq!(reasons("quay.example.com/os:latest", "a"), [NOT_BY_DIGEST]);
    assert_eq!(
        reasons(&good.replace("quay.example.com", "localhost"), "a"),
        [NOT_BY_DIGEST]
    );
    assert_eq!(reasons(&good, "Not_A_Name"), [BAD_NAME]);
    assert_eq!(reasons(&good, "a"), [INCOMPLETE]);
}
