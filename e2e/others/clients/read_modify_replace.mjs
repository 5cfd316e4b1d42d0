// What a typed client does all the time: create, read, modify, replace, watch and delete objects of many kinds.
//
// usage: node read_modify_replace.mjs KUBECONFIG
// Prints one line per check, as `go test -v` does.

import * as k8s from '@kubernetes/client-node';
import assert from 'node:assert';

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const namespace = 'javascript';

const podSpec = { containers: [{ name: 'c', image: 'i' }] };
const template = { metadata: { labels: { a: 'b' } }, spec: podSpec };
const workload = { selector: { matchLabels: { a: 'b' } }, template };
const bodies = [
  { apiVersion: 'v1', kind: 'ConfigMap', data: { a: '1' } },
  { apiVersion: 'v1', kind: 'Secret', stringData: { a: '1' } },
  { apiVersion: 'v1', kind: 'Service', spec: { selector: { a: 'b' }, ports: [{ port: 80 }] } },
  { apiVersion: 'v1', kind: 'ServiceAccount' },
  { apiVersion: 'v1', kind: 'Pod', spec: podSpec },
  { apiVersion: 'apps/v1', kind: 'Deployment', spec: workload },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', spec: workload },
  { apiVersion: 'apps/v1', kind: 'StatefulSet', spec: { ...workload, serviceName: 's' } },
  { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'Role', rules: [] },
  { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', spec: { holderIdentity: 'me' } },
  { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', spec: { maxUnavailable: 1, selector: {} } },
];

// Reads, modifies and replaces an object, again if a controller was faster.
async function replaced(object, number) {
  for (let attempt = 0; attempt < 10; attempt += 1) {
    const read = await objects.read(object);
    read.metadata.annotations = { number };
    try {
      return [read, await objects.replace(read)];
    } catch (error) {
      if (error.code !== 409) throw error;
    }
  }
  throw new Error('always a conflict');
}

// Creates, replaces what was read twice, patches and deletes one object.
async function roundTrip(body) {
  const object = { ...body, metadata: { name: 'x', namespace } };
  await objects.create(object);
  for (const number of ['1', '2']) {
    const [read, written] = await replaced(object, number);
    assert.equal(written.metadata.annotations.number, number);
    assert.deepEqual(written.metadata.creationTimestamp, read.metadata.creationTimestamp);
    assert.equal(written.metadata.uid, read.metadata.uid);
  }
  const change = { ...object, metadata: { ...object.metadata, annotations: { number: '3' } } };
  const patched = await objects.patch(change, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
  assert.equal(patched.metadata.annotations.number, '3');
  await objects.delete(object);
}

async function staleReplace() {
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'stale' }, data: {} } });
  const body = await core.readNamespacedConfigMap({ namespace, name: 'stale' });
  body.data = { a: '2' };
  await core.replaceNamespacedConfigMap({ namespace, name: 'stale', body });
  body.data = { a: '3' };
  await assert.rejects(core.replaceNamespacedConfigMap({ namespace, name: 'stale', body }), { code: 409 });
}

// An informer sees an object appear, change and go.
async function informer() {
  const list = () => core.listNamespacedConfigMap({ namespace });
  const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);
  const seen = [];
  const done = new Promise((resolve, reject) => {
    for (const event of ['add', 'update', 'delete']) {
      informer.on(event, (object) => {
        if (object.metadata.name !== 'watched') return;
        seen.push(event);
        if (event === 'delete') resolve();
      });
    }
    setTimeout(() => reject(new Error(`not within 20 s; seen: ${seen}`)), 20000).unref();
  });
  await informer.start();
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'watched' }, data: {} } });
  const body = await core.readNamespacedConfigMap({ namespace, name: 'watched' });
  body.data = { a: '1' };
  await core.replaceNamespacedConfigMap({ namespace, name: 'watched', body });
  await core.deleteNamespacedConfigMap({ namespace, name: 'watched' });
  await done;
  await informer.stop();
  assert.deepEqual(seen, ['add', 'update', 'delete']);
}

let failed = 0;
async function check(name, action) {
  try {
    await action();
    console.log(`--- PASS: ${name}`);
  } catch (error) {
    console.log(error);
    console.log(`--- FAIL: ${name}`);
    failed += 1;
  }
}

await core.createNamespace({ body: { metadata: { name: namespace } } });
for (const body of bodies) await check(body.kind, () => roundTrip(body));
await check('stale replace', staleReplace);
await check('informer', informer);
process.exit(failed === 0 ? 0 : 1);
