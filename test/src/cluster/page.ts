import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '@isthmus/service';
import { parse } from 'yaml';
import { until } from '../harness/index.ts';
import { sessionsAre } from './checks/metrics.ts';
import { SOCKET } from './control-planes.ts';
import { apply, kubectl } from './kubectl.ts';
import { allowPods, commandsOf, HOLDER, K8S, SERVER as PROXY_SERVER, paste } from './recipe.ts';
import { endStatic, nextStatic, readPod, removePod, restartApiServer, type Strike, writePod } from './static-pods.ts';
import type { Fault } from './step.ts';
import { anpImage, endServer, ofAnp } from './upstream.ts';
import { WAYS } from './way.ts';

const RECIPE = 'recipes/kubernetes-io';
const SERVER = 'konnectivity-server';
const AGENT = 'konnectivity-agent';
const ROLLOUT_MS = 180_000;

type Make = 'ANP' | 'Isthmus';

/** recipes/kubernetes-io, with ANP's images as the page has them, in place of the other recipe's server and agents. */
export async function kubernetesIosPage(): Promise<void> {
  await kubectl(['-n', 'isthmus-agent', 'scale', 'deployment/agent', '--replicas=0']);
  for (const name of [PROXY_SERVER, HOLDER]) await endStatic(name);
  await allowPods();
  // The page makes this file with openssl.
  await paste(
    'kubeadm kubeconfig user --client-name system:konnectivity-server > /etc/kubernetes/konnectivity-server.conf',
  );
  await paste(commandsOf(join(RECIPE, 'README.md'), 'Files that user 65532 must read'));
  const egress = 'egress-selector-configuration.yaml';
  cpSync(join(K8S, RECIPE, 'node', egress), join('/etc/kubernetes', egress));
  writeServer('ANP');
  await restartApiServer();
  await kubectl(['apply', '-f', join(K8S, RECIPE, 'konnectivity-rbac.yaml')]);
  await apply(pagesAgents());
  await agentsRun('ANP');
  await nextStatic(SERVER, '');
}

/** Ends the page's server and agents, if they are there. */
export async function leavePage(): Promise<void> {
  removePod(SERVER);
  await kubectl(['delete', '--ignore-not-found', '-k', join(K8S, RECIPE)]);
}

function writeServer(make: Make): void {
  const recipes = readPod(join(K8S, RECIPE, `node/${SERVER}.yaml`));
  // Agents that have lost their server come back within about 11 s.
  if (make === 'Isthmus') recipes.spec.containers[0].args?.push('--dial-park-timeout=15s');
  writePod(make === 'ANP' ? ofAnp(recipes) : recipes);
}

/** Changes the server: docs/KUBERNETES.md, "Server first", steps 1 and 2. */
async function changeServer(to: Make, strike: Strike): Promise<void> {
  await endServer(SERVER, SOCKET, strike);
  writeServer(to);
  await nextStatic(SERVER, '');
  await sessionsAre(WAYS.page, 1);
}

/** The recipe's agents as the page has them. ANP's agent does not leave before it is killed. */
function pagesAgents(): object {
  const daemonSet = parse(readFileSync(join(K8S, RECIPE, `${AGENT}.yaml`), 'utf8'));
  const { spec } = daemonSet.spec.template;
  delete daemonSet.spec.updateStrategy;
  delete spec.terminationGracePeriodSeconds;
  for (const container of spec.containers) container.image = anpImage('agent');
  return daemonSet;
}

/** Changes the agents: step 3 there, and its way back. */
async function changeAgents(to: Make): Promise<void> {
  if (to === 'Isthmus') await kubectl(['apply', '-k', join(K8S, RECIPE)]);
  else await kubectl(['-n', 'kube-system', 'rollout', 'undo', `daemonset/${AGENT}`]);
  await agentsRun(to);
}

/**
 * Waits until all agents are of a make, but for some of ours that leave: those stay as long as their tunnels. `kubectl rollout status` would wait
 * for them: of several pods of a node, a DaemonSet's status is that of the oldest.
 */
async function agentsRun(make: Make): Promise<void> {
  const images = { ANP: anpImage('agent'), Isthmus: `isthmus:${VERSION}` };
  const ready = '{.status.conditions[?(@.type=="Ready")].status}';
  const line = `{.spec.containers[0].image}|{.metadata.deletionTimestamp}|${ready}{"\\n"}`;
  const list = ['get', 'pods', '-l', `k8s-app=${AGENT}`, `-o=jsonpath={range .items[*]}${line}{end}`];
  const run = async () => {
    const pods = (await kubectl(['-n', 'kube-system', ...list])).trim().split('\n');
    const stay = pods.map((pod) => pod.split('|')).filter(([image, leaves]) => !leaves || image !== images.Isthmus);
    return stay.length > 0 && stay.every(([image, , status]) => image === images[make] && status === 'True');
  };
  await until(run, { what: `agents of ${make} alone`, deadline: ROLLOUT_MS });
}

/**
 * The new agent is there before the old one leaves. ANP's drains until the kubelet kills it, 30 s later, with a webhook's connection that is used
 * again and again, and ANP's server may have given it a call by then. If that call's connection goes just before the answer, kubectl says
 * nothing (measured: 54 ms after the kill).
 */
const AGENT_GONE = /[Nn]o agent available|error dialing backend|connection reset by peer|: (unexpected )?EOF$/;
/** ANP's server does not end a dial whose agent is gone (pkg/server/server.go, "TODO(#126)"), so that waits for its backstop. */
const AGENT_OF_ANP_GONE = new RegExp(`${AGENT_GONE.source}|: dial timeout, backstop$`);
/** ANP's server refuses calls until agents are back, which try again after about 11 s at most. Ours has the calls wait. */
const NO_AGENT_YET = /[Nn]o agent available/;

/** docs/KUBERNETES.md, every step of it and every step back. */
export const SERVER_FIRST: readonly Fault[] = [server('ANP', 'Isthmus', 'ANP')];
export const THEN_AGENTS: readonly Fault[] = [agents('ANP', 'Isthmus', 'Isthmus')];
export const SERVER_BACK: readonly Fault[] = [server('Isthmus', 'ANP', 'Isthmus')];
export const AGENTS_BACK_AND_FIRST: readonly Fault[] = [
  agents('Isthmus', 'ANP', 'ANP'),
  agents('ANP', 'Isthmus', 'ANP'),
  server('ANP', 'Isthmus', 'Isthmus'),
];

/** @param with what the agents are meanwhile */
function server(from: Make, to: Make, agents: Make): Fault {
  const mayFail = to === 'ANP' ? { mayFail: NO_AGENT_YET } : {};
  return {
    name: `server: ${from} to ${to}, agents ${agents}`,
    ...mayFail,
    mayCut: true,
    mayCutAdmissions: true,
    commit: ({ strike }) => changeServer(to, strike),
  };
}

/** @param server what the server is meanwhile */
function agents(from: Make, to: Make, server: Make): Fault {
  return {
    name: `agents: ${from} to ${to}, server ${server}`,
    mayFail: server === 'ANP' ? AGENT_OF_ANP_GONE : AGENT_GONE,
    oneSilent: true,
    mayCut: true,
    commit: () => changeAgents(to),
  };
}
