import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { test } from 'node:test';
import type { FlagTable } from './flag.ts';
import { helpText } from './help.ts';
import { parseFlags } from './parse.ts';
import { agentFlags, gatewayFlags, hubFlags, PROGRAMS, serverFlags } from './programs.ts';

/** Name, type and default as printed by --help of upstream's programs, also of its next release; `-` where they print none. */
const KLOG = `
  v Level 4 | vmodule moduleSpec - | logtostderr bool true | alsologtostderr bool - | alsologtostderrthreshold severity -
  stderrthreshold severity 2 | log-dir string - | log-file string - | log-file-max-size uint 1800
  log-backtrace-at traceLocation :0 | add-dir-header bool - | skip-headers bool - | skip-log-headers bool -
  one-output bool - | legacy-stderr-threshold-behavior bool true`;

const SERVER = `${KLOG}
  admin-bind-address string 127.0.0.1 | admin-port int 8095 | agent-bind-address string - | agent-namespace string -
  agent-port int 8091 | agent-service-account string - | authentication-audience string -
  backend-dial-timeout duration - | cipher-suites strings - | cluster-ca-cert string - | cluster-cert string -
  cluster-key string - | delete-existing-uds-file bool true | enable-contention-profiling bool -
  enable-lease-controller bool - | enable-profiling bool - | frontend-keepalive-time duration 1h0m0s
  graceful-shutdown-timeout duration - | health-bind-address string - | health-port int 8092
  keepalive-time duration 1h0m0s | kube-api-content-type string application/vnd.kubernetes.protobuf
  kubeconfig string - | kubeconfig-burst int - | kubeconfig-qps float32 - | lease-label string k8s-app=konnectivity-server
  lease-namespace string kube-system | proxy-strategies string default | server-bind-address string -
  server-ca-cert string - | server-cert string - | server-count int 1 | server-id string id | server-key string -
  server-port int 8090 | tls-min-version string - | uds-name string - | xfr-channel-size int 10
  warn-on-channel-limit bool true
  frontend-write-channel-size int 10`;

const AGENT = `${KLOG}
  admin-bind-address string 127.0.0.1 | admin-server-port int 8094 | agent-cert string - | agent-id string id
  agent-identifiers string - | agent-key string - | alpn-proto strings - | ca-cert string -
  count-server-leases bool - | enable-contention-profiling bool - | enable-profiling bool -
  health-server-host string - | health-server-port int 8093 | keepalive-time duration 1h0m0s
  kube-api-content-type string application/vnd.kubernetes.protobuf | kubeconfig string -
  lease-label-selector string k8s-app=konnectivity-server | lease-namespace string kube-system
  probe-interval duration 1s | proxy-server-host string 127.0.0.1 | proxy-server-port int 8091
  server-count-source string default | service-account-token-path string - | sync-forever bool -
  sync-interval duration 1s | sync-interval-cap duration 10s | warn-on-channel-limit bool - | xfr-channel-size int 150`;

const ZERO = new Set(['', '0', '0s', 'false', '[]']);

function rowsOf(text: string): Map<string, string> {
  const rows = text.split(/[|\n]/).map((row) => row.trim().split(' '));
  return new Map(rows.filter(([name]) => name).map(([name = '', type, initial]) => [name, `${type} ${initial}`]));
}

function shownBy(table: FlagTable): Map<string, string> {
  const rows = Object.entries(table).map(([name, { kind, initial, unset }]): [string, string] => {
    const text = kind.write(initial);
    return [
      name,
      `${kind.name} ${unset && initial === '' ? 'id' : ZERO.has(text) && kind.name !== 'severity' ? '-' : text}`,
    ];
  });
  return new Map(rows);
}

for (const [program, table, upstream] of [
  ['proxy-server', serverFlags, SERVER],
  ['proxy-agent', agentFlags, AGENT],
] as const) {
  test(`${program} has all of upstream's flags, with their types and defaults`, () => {
    const ours = shownBy(table);
    const theirs = rowsOf(upstream);
    // klog prints no default for a severity of 0.
    if (ours.get('alsologtostderrthreshold') === 'severity 0') ours.set('alsologtostderrthreshold', 'severity -');
    for (const [name, row] of theirs) assert.equal(ours.get(name), row, name);
  });

  test(`flags of ${program} that upstream does not have are marked as our own`, () => {
    const theirs = rowsOf(upstream);
    for (const [name, flag] of Object.entries(table as FlagTable)) {
      // Upstream's default for --mode is grpc. Ours is unset, which also serves grpc.
      const isOwn = !theirs.has(name) && name !== 'mode';
      assert.equal(flag.own ?? false, isOwn, name);
    }
  });
}

test('--mode is unset by default', () => {
  assert.equal(parseFlags(serverFlags, [], {}).values.mode, '');
});

test('every flag of gateway and hub is also a flag of the all-in-one server', () => {
  for (const name of [...Object.keys(gatewayFlags), ...Object.keys(hubFlags)]) assert.ok(name in serverFlags, name);
  const parts = new Set([...Object.keys(gatewayFlags), ...Object.keys(hubFlags)]);
  const rest = Object.keys(serverFlags).filter((name) => !parts.has(name));
  assert.deepEqual(rest, ['xfr-channel-size', 'frontend-write-channel-size', 'warn-on-channel-limit']);
});

test('ids come from the environment, otherwise they are generated', () => {
  const { values } = parseFlags(serverFlags, [], { PROXY_SERVER_ID: 's-1' });
  assert.equal(values['server-id'], 's-1');
  assert.equal(parseFlags(agentFlags, [], { PROXY_AGENT_ID: 'a-1' }).values['agent-id'], 'a-1');
  const made = [1, 2].map(() => parseFlags(agentFlags, [], {}).values['agent-id']);
  assert.match(made[0] as string, /^[\da-f]{8}-[\da-f-]{27}$/);
  assert.notEqual(made[0], made[1]);
});

test('a gateway without an id is named after its machine, with a new suffix each time', () => {
  const made = [1, 2].map(() => parseFlags(gatewayFlags, [], {}).values['server-id'] as string);
  for (const id of made) assert.match(id, new RegExp(`^${hostname()}-[\\da-f]{6}$`));
  assert.notEqual(made[0], made[1]);
});

test('the old name of the lease selector is accepted', () => {
  const { values, warnings } = parseFlags(agentFlags, ['--lease-label=a=b'], {});
  assert.equal(values['lease-label-selector'], 'a=b');
  assert.deepEqual(warnings, ['--lease-label is an old name: use --lease-label-selector']);
});

for (const program of PROGRAMS) {
  test(`${program.name} --help shows every flag under its topic, within 120 columns`, () => {
    const help = helpText(program);
    for (const [name, flag] of Object.entries(program.flags)) {
      assert.equal(help.includes(`--${name}`), !flag.hidden, name);
      assert.ok(help.includes(`\n${flag.topic}:\n`), flag.topic);
    }
    for (const line of help.split('\n')) assert.ok(line.length <= 120, line);
    assert.match(help, /^ {2}-v, --v Level /m);
    assert.match(help, /^ {2}-h, --help /m);
  });

  test(`docs/FLAGS.md has every flag of ${program.name}`, () => {
    const page = readFileSync(new URL('../../../docs/FLAGS.md', import.meta.url), 'utf8');
    const letter = new RegExp(`\\*\\*(.)\\*\\* \`${program.name}\``).exec(page)?.[1];
    for (const [name, { hidden, inert }] of Object.entries(program.flags)) {
      if (inert !== undefined) {
        assert.ok(hidden || page.split('## Accepted, without effect')[1]?.includes(`\`--${name}\``), name);
        continue;
      }
      const letters = [...page.matchAll(/^- ([A-Z]+) `--([\w-]+)`/gm)].flatMap(([, of = '', flag]) =>
        flag === name ? [...of] : [],
      );
      assert.equal(letters.includes(`${letter}`), !hidden, name);
    }
  });
}

test('a server count, or a PING interval, that is set can be told from an unset one', () => {
  const count = (...args: string[]) => parseFlags(serverFlags, args, {}).values['server-count'];
  assert.deepEqual([count(), count('--server-count=1')], [undefined, 1]);
  const ping = (...args: string[]) => parseFlags(agentFlags, args, {}).values['ping-interval'];
  assert.deepEqual([ping(), ping('--ping-interval=1s')], [undefined, 1000]);
});
