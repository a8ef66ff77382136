import { existsSync } from 'node:fs';
import { until } from '../../harness/index.ts';
import { containerOf, nextStatic, tryKubectl } from '../kubernetes.ts';
import { HOLDER } from '../recipe.ts';
import { manifestOf, readPod, removePod, type StaticPod, writePod } from '../static-pods.ts';
import { ofAnp } from '../upstream.ts';
import type { Fault } from './fault.ts';
import { serverChanged, serverKilled } from './faults.ts';

const SERVER = 'proxy-server';
const GONE_MS = 120_000;

/** Ours, while ANP's server is in their place. */
const put: StaticPod[] = [];

/** What callers notice with ANP's server in the place of ours, without what holds its socket. The agents stay ours. */
export const BESIDE_ANP: readonly Fault[] = [serverChanged, serverKilled].map(({ name, commit }) => ({
  name: `${name}, of ANP`,
  mayFail: /./,
  commit,
  comparison: { begin: anpsServer, end: ourServer },
}));

async function anpsServer(): Promise<void> {
  const server = readPod(manifestOf(SERVER));
  const before = await containerOf(SERVER);
  put.push(server);
  const held = existsSync(manifestOf(HOLDER));
  if (held) {
    put.push(readPod(manifestOf(HOLDER)));
    removePod(HOLDER);
    const gone = async () => (await tryKubectl(['-n', 'kube-system', 'get', 'pod', `${HOLDER}-node`])).status !== 0;
    await until(gone, { what: `the end of ${HOLDER}`, deadline: GONE_MS });
  }
  const anps = ofAnp(server);
  const [container] = anps.spec.containers;
  container.args =
    container.args?.map((flag) => flag.replace(`/${SERVER}.socket`, '/konnectivity-server.socket')) ?? [];
  // Ours tells the two protocols apart by a connection's first bytes.
  container.args.push(`--mode=${held ? 'http-connect' : 'grpc'}`);
  writePod(anps);
  await nextStatic(SERVER, before);
}

async function ourServer(): Promise<void> {
  const before = await containerOf(SERVER);
  for (const pod of put) writePod(pod);
  await nextStatic(SERVER, before);
  for (const { metadata } of put.splice(0)) await nextStatic(metadata.name, '');
}
