//! Decisions about the content of the OSImageStream.

use serde_json::{Value, json};

use super::*;

const US: &str = "v2";

/// A stream's name, and one digit each for its OS image and its extensions image.
type Stream = (&'static str, char, char);

fn image(digit: char) -> String {
    format!(
        "quay.example.com/release/os@sha256:{}",
        digit.to_string().repeat(64)
    )
}

/// Returns a ConfigMap's entries with these streams.
fn entries(streams: &[Stream]) -> BTreeMap<String, String> {
    let tags = streams.iter().flat_map(|(name, os, extensions)| {
        let tag = |tag: String, digit: char| {
            json!({
                "name": tag,
                "annotations": {"io.openshift.os.streamclass": name},
                "from": {"kind": "DockerImage", "name": image(digit)},
            })
        };
        [
            tag(format!("rhel-coreos-{name}"), *os),
            tag(format!("rhel-coreos-{name}-extensions"), *extensions),
        ]
    });
    let references = json!({"kind": "ImageStream", "spec": {"tags": tags.collect::<Vec<_>>()}});
    BTreeMap::from([(IMAGES.to_owned(), references.to_string())])
}

fn sources(streams: &[Stream]) -> StreamSources {
    StreamSources::read(&entries(streams)).unwrap()
}

fn status(default: &str, streams: &[Stream]) -> Value {
    let available = streams.iter().map(
        |(name, os, extensions)| json!({"name": name, "osImage": image(*os), "osExtensionsImage": image(*extensions)}),
    );
    json!({"defaultStream": default, "availableStreams": available.collect::<Vec<_>>()})
}

fn existing(spec: &str, annotations: &Value, status: &Value) -> OSImageStream {
    serde_json::from_value(json!({
        "metadata": {"name": "cluster", "annotations": annotations, "resourceVersion": "7"},
        "spec": {"defaultStream": spec},
        "status": status,
    }))
    .unwrap()
}

fn published(decision: Result<StreamDecision, PublishError>) -> OSImageStream {
    match decision {
        Ok(StreamDecision::Publish(object)) => *object,
        other => panic!("{other:?}"),
    }
}

const TWO: [Stream; 2] = [("rhel-10", '3', '4'), ("rhel-9", '1', '2')];

#[test]
fn a_cluster_that_says_nothing_gets_no_object() {
    let nothing = StreamSources::read(&BTreeMap::new()).unwrap();
    assert_eq!(
        decide(None, &nothing, StreamRelease::default(), US),
        Ok(StreamDecision::Nothing)
    );
    // The images of every release do not name their stream.
    let plain = BTreeMap::from([
        (OS_IMAGE.to_owned(), image('1')),
        (EXTENSIONS_IMAGE.to_owned(), image('2')),
    ]);
    let plain = StreamSources::read(&plain).unwrap();
    assert_eq!(
        decide(None, &plain, StreamRelease::default(), US),
        Ok(StreamDecision::Nothing)
    );
    // Nor does a user's selection alone.
    let wish = existing("rhel-9", &json!({}), &Value::Null);
    assert_eq!(
        decide(Some(&wish), &plain, StreamRelease::default(), US),
        Ok(StreamDecision::Nothing)
    );
}

#[test]
fn the_default_is_what_the_user_says_or_was_in_force_or_fits() {
    let with = |installed| StreamRelease {
        installed,
        ..StreamRelease::default()
    };
    let in_force = existing("", &json!({}), &status("rhel-10", &TWO));
    let wish = existing("rhel-9", &json!({}), &status("rhel-10", &TWO));
    let okd = [("centos-10", '3', '4'), ("centos-9", '1', '2')];
    let cases: [(_, _, &[Stream], _, _); 9] = [
        (
            "the user's wish",
            Some(&wish),
            &TWO,
            Some("5.0.1"),
            Some("rhel-9"),
        ),
        (
            "what was in force",
            Some(&in_force),
            &TWO,
            Some("4.9.0"),
            Some("rhel-10"),
        ),
        ("the only one", None, &TWO[..1], Some("4.9.0"), Some("rhel-10")),
        ("installed as 4", None, &TWO, Some("4.20.7"), Some("rhel-9")),
        ("installed as 5", None, &TWO, Some("5.0.0-rc.1"), Some("rhel-10")),
        (
            "another distribution",
            None,
            &okd,
            Some("4.20.0"),
            Some("centos-10"),
        ),
        ("installed as nothing known", None, &TWO, None, None),
        (
            "the only one, regardless of its name",
            None,
            &okd[1..],
            Some("4.20.0"),
            Some("centos-9"),
        ),
        (
            "the wish is not there",
            Some(&wish),
            &TWO[..1],
            Some("4.20.0"),
            None,
        ),
    ];
    for (name, existing, streams, installed, expected) in cases {
        let decision = decide(existing, &sources(streams), with(installed), US);
        let found = match decision {
            Ok(StreamDecision::Publish(object)) => object.status.map(|status| status.default_stream),
            Ok(other) => panic!("{name}: {other:?}"),
            Err(_) => None,
        };
        assert_eq!(found.as_deref(), expected, "{name}");
    }
    let mut plain = entries(&TWO);
    plain.insert(OS_IMAGE.to_owned(), image('1'));
    let plain = StreamSources::read(&plain).unwrap();
    let object = published(decide(None, &plain, StreamRelease::default(), US));
    assert_eq!(object.spec.default_stream, "rhel-9", "what pools have anyway");
}

#[test]
fn what_is_published_names_its_version_and_release_and_is_written_once() {
    let release = StreamRelease {
        image: Some("payload"),
        installed: Some("4.20.0"),
        ..StreamRelease::default()
    };
    let object = published(decide(None, &sources(&TWO), release, US));
    assert_eq!(
        serde_json::to_value(&object).unwrap(),
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "OSImageStream",
            "metadata": {"name": "cluster", "annotations": {
                "machineconfiguration.openshift.io/release-image-version": "v2",
                "machineconfiguration.openshift.io/release-payload-image": "payload",
            }},
            "spec": {"defaultStream": "rhel-9"},
            "status": status("rhel-9", &TWO),
        })
    );
    assert_eq!(
        decide(Some(&object), &sources(&TWO), release, US),
        Ok(StreamDecision::Nothing)
    );
    let another = decide(Some(&object), &sources(&TWO), release, "v3");
    assert!(
        matches!(another, Ok(StreamDecision::Publish(_))),
        "another version looks again"
    );
    let user_chose = OSImageStream {
        spec: OSImageStreamSpec {
            default_stream: "rhel-10".to_owned(),
        },
        ..object
    };
    let object = published(decide(Some(&user_chose), &sources(&TWO), release, US));
    assert_eq!(object.status.unwrap().default_stream, "rhel-10");
}

#[test]
fn streams_published_by_another_owner_for_this_release_are_adopted() {
    let release = |image| StreamRelease {
        image: Some(image),
        ..StreamRelease::default()
    };
    let nothing = StreamSources::default();
    let theirs = existing(
        "rhel-9",
        &json!({annotations::RELEASE_IMAGE_VERSION: "abc", annotations::RELEASE_PAYLOAD_IMAGE: "now"}),
        &status("rhel-9", &TWO),
    );
    let object = published(decide(Some(&theirs), &nothing, release("now"), US));
    assert_eq!(object.status, theirs.status);
    assert_eq!(
        object.metadata.annotations.unwrap()[annotations::RELEASE_IMAGE_VERSION],
        US
    );
    let decision = decide(Some(&theirs), &nothing, release("later"), US).unwrap();
    let StreamDecision::Wait(why) = decision else {
        panic!("{decision:?}")
    };
    assert!(why.contains("are those of now"), "{why}");
    let by_hand = existing("rhel-9", &json!({}), &status("rhel-9", &TWO));
    published(decide(Some(&by_hand), &nothing, release("now"), US));
}

#[test]
fn streams_of_the_release_before_were_rendered_for_the_next_one() {
    let release = |image| StreamRelease {
        version: Some("4.22.0"),
        image: Some(image),
        ..StreamRelease::default()
    };
    let of = |annotations: &Value| existing("rhel-9", annotations, &status("rhel-9", &TWO));
    let recorded = of(&json!({annotations::RELEASE_PAYLOAD_IMAGE: "old"}));
    for (name, object, image, rendered, expected) in [
        ("of the release", &recorded, "old", Some("4.22.0"), false),
        ("of another one", &recorded, "new", Some("4.22.0"), true),
        ("a plain release", &recorded, "new", None, true),
        (
            "the operator is older than the target",
            &recorded,
            "new",
            Some("4.21.0"),
            false,
        ),
        ("without a record", &of(&json!({})), "new", Some("4.22.0"), false),
    ] {
        let found = stale(object, release(image), rendered);
        assert_eq!(found.is_some(), expected, "{name}: {found:?}");
    }
    assert_eq!(
        stale(&recorded, StreamRelease::default(), None),
        None,
        "no ClusterVersion"
    );
}

#[test]
fn entries_of_another_release_are_not_believed_yet() {
    let mut old = entries(&TWO);
    old.insert(VERSION.to_owned(), "4.20.1".to_owned());
    let old = StreamSources::read(&old).unwrap();
    let release = |version| StreamRelease {
        version: Some(version),
        installed: Some("4.20.0"),
        ..StreamRelease::default()
    };
    published(decide(None, &old, release("4.20.1"), US));
    let decision = decide(None, &old, release("4.21.0"), US).unwrap();
    assert_eq!(
        decision,
        StreamDecision::Wait(
            "ConfigMap machine-config-osimageurl is for release 4.20.1, but the cluster is updating to 4.21.0"
                .to_owned()
        )
    );
    let mut unreleased = entries(&TWO);
    unreleased.insert(VERSION.to_owned(), UNRELEASED.to_owned());
    let unreleased = StreamSources::read(&unreleased).unwrap();
    published(decide(None, &unreleased, release("4.21.0"), US));
    // An administrator who has recorded a list of images by hand does not name the release beside it.
    let mut listed = entries(&TWO);
    let mut references: Value = serde_json::from_str(&listed[IMAGES]).unwrap();
    references["metadata"] = json!({"name": "4.21.0-multi"});
    listed.insert(IMAGES.to_owned(), references.to_string());
    let listed = StreamSources::read(&listed).unwrap();
    published(decide(None, &listed, release("4.21.0"), US));
    let decision = decide(None, &listed, release("4.21.1"), US).unwrap();
    assert!(matches!(decision, StreamDecision::Wait(why) if why.contains("is for release 4.21.0-multi")));
}

#[test]
fn entries_that_cannot_be_read_say_which_and_why() {
    for (key, text, expected) in [
        (IMAGES, "{", "entry \"image-references\" cannot be read"),
        (
            IMAGES,
            "{\"kind\": \"Pod\"}",
            "entry \"image-references\": not a list",
        ),
        (LABELS, "[1]", "entry \"image-labels\": not a description"),
    ] {
        let entries = BTreeMap::from([(key.to_owned(), text.to_owned())]);
        let problem = StreamSources::read(&entries).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
    }
}
