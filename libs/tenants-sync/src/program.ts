import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { isthmusTenantsSync, type SyncValues } from '@isthmus/flags';
import { flaggedConnection, type KubeClient, kubeClient, leaderLease, periodic } from '@isthmus/kube';
import { checkedTls, lastGood, randomHex, type TlsFiles } from '@isthmus/runtime';
import {
  type Check,
  Closing,
  type Context,
  type Running,
  runProgram,
  SERVER_UNREADY,
  serveHealth,
  VERSION,
} from '@isthmus/service';
import { createLogger, type ProgramLogger } from '@isthmus/telemetry';
import { inWords } from '@isthmus/tunnel';
import { SYNC } from './defaults.ts';
import { Directory } from './directory.ts';
import type { From } from './kinds.ts';
import { askMember, type PlaneSays } from './member.ts';
import { ProfileWriter } from './profiles.ts';
import { Report, syncMetrics } from './report.ts';
import { StatusWriter } from './status.ts';
import { Sync, type Verdict } from './sync.ts';
import { Watching } from './watching.ts';

function startSync(flags: SyncValues, { log }: Context<ProgramLogger>): Promise<Running> {
  return Closing.guard(async (closing) => {
    const now = () => performance.now();
    const directory = new Directory(flags['tenants-dir'] || flags.out);
    const source = flaggedConnection(flags.kubeconfig);
    const client = await kubeClient({ source, qps: SYNC.qps, burst: SYNC.burst, rateName: 'isthmus tenants sync' });
    closing.defer(() => client[Symbol.dispose]());
    /** By kind, or kind and namespace: why not all of its objects is known. */
    const unknown = new Map<string, string>();
    const warn = warnings(log);
    const note = (what: string, why: string | undefined) => {
      if (why === undefined) unknown.delete(what);
      else unknown.set(what, why);
    };
    const ended = new AbortController();
    /** Wakes the writer. */
    let wake = () => {};
    let listed = false;
    let ready = false;
    const sync = new Sync({
      ...{ directory, now, graceMs: flags.grace },
      stores: (store, name) => watching.stores(store, name),
      sources: (name) => watching.sources(name),
      changed: (name, verdict) => tell(log, name, verdict),
    });
    const lying = await sync.load();
    const watching: Watching = new Watching({
      ...{
        client,
        now,
        lying,
        plane: flags.plane,
        from: [...new Set(flags.from as From[])],
        namespace: flags.namespace,
      },
      agents: {
        namespace: flags['agent-namespace'],
        serviceAccount: flags['agent-service-account'],
        audience: flags['authentication-audience'],
      },
      changed(name, gone) {
        sync.changed(name, gone);
        wake();
      },
      changedValues(isChanged) {
        sync.changedValues(isChanged);
        wake();
      },
      failed(what, error) {
        warn(what, UNREAD, error);
        note(what, error && `it cannot read ${what}, and what is known stays: ${inWords(error)}`);
      },
      short(what, why) {
        warn(what, 'not all of them are kept', why === undefined ? undefined : new Error(why));
        note(what, why && `it does not keep all ${what}: ${why}`);
      },
      rolledBack(what, object) {
        log.warn(
          { what, object },
          'the API server was restored to before its last change: what it has counts, what it lacks stays until this sync restarts',
        );
      },
      listed() {
        listed = true;
        wake();
      },
    });
    closing.defer(() => watching[Symbol.asyncDispose]());
    const report = new Report(directory, flags.plane);
    const checks = (): Check[] => [
      {
        name: 'objects',
        ok: ready,
        detail: ready ? `${sync.written} tenants written` : `not read yet: ${watching.unlisted.join(', ')}`,
      },
      { name: 'api-server', ok: true, detail: [...unknown.values()].join('; ') },
    ];
    const health = await serveHealth({
      ...{ host: flags['health-bind-address'], port: flags['health-port'], unready: SERVER_UNREADY, checks },
      metrics: syncMetrics(sync),
    });
    closing.defer(health.close);

    const identity = `${hostname()}-${randomHex(4)}`;
    if (flags['status-namespace'] !== '') {
      const statusClient = await kubeClient({ source, qps: SYNC.statusQps, burst: SYNC.statusQps });
      closing.defer(() => statusClient[Symbol.dispose]());
      closing.defer(writeStatus(flags, { client: statusClient, identity, sync, watching, warn }));
    }

    const write = async () => {
      await sync.flush();
      report.write(sync.verdicts, unknown.values(), sync.written, now());
      if (!ready) log.info({ tenants: sync.written }, 'tenants are written');
      ready = true;
    };
    const writing = (async () => {
      while (!ended.signal.aborted) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        // Nothing is written before all is known: what comes first is not what is older.
        const unwritten = (error?: Error) => warn('directory', 'the directory cannot be written', error);
        if (listed) await write().then(() => unwritten(), unwritten);
        watching.listFreed();
        const pause = sleep(SYNC.graceLookMs, undefined, { signal: ended.signal }).catch(() => {});
        await Promise.race([woken, pause]);
        await sleep(SYNC.gatherMs, undefined, { signal: ended.signal }).catch(() => {});
      }
    })();
    closing.defer(async () => {
      ended.abort();
      await writing;
    });
    log.info({ version: VERSION, plane: flags.plane, from: flags.from, identity }, 'following objects');
    return { drain: async () => {}, close: () => closing.close() };
  });
}

interface StatusParts {
  readonly client: KubeClient;
  readonly identity: string;
  readonly sync: Sync;
  readonly watching: Watching;
  readonly warn: Warn;
}

/** @param error undefined if there is none any more */
type Warn = (what: string, says: string, error: Error | undefined) => void;

/** Logs what fails, again only once it fails for another reason. */
function warnings(log: ProgramLogger): Warn {
  const last = new Map<string, string>();
  return (what, says, error) => {
    if (!error) return void last.delete(what);
    const text = inWords(error);
    if (last.get(what) !== text) log.warn({ what }, `${says}: ${text}`);
    last.set(what, text);
  };
}

/** Writes the objects' status, if this is the one of several syncs that does. Returns what ends that. */
function writeStatus(flags: SyncValues, { client, identity, sync, watching, warn }: StatusParts) {
  const namespace = flags['status-namespace'];
  const name = `${LEASE}-${flags.plane}`;
  const unheld = (error: Error) => warn('lease', `the lease ${namespace}/${name}`, error);
  const leader = leaderLease({ client, namespace, identity, name, failed: unheld });
  const leads = () => leader.leads;
  const filesOf = (what: string, files: TlsFiles) =>
    lastGood(
      () => checkedTls(files),
      (error) => warn(what, UNREAD, error),
    );
  const proxyTls = filesOf('--proxy-ca-cert', { ca: flags['proxy-ca-cert'] });
  const memberFiles = { ca: flags['member-ca-cert'], cert: flags['member-cert'], key: flags['member-key'] };
  const memberTls = memberFiles.ca === '' ? undefined : filesOf('the files for --member', memberFiles);
  const known = (name: string) => watching.status(name);
  const profiles = new ProfileWriter({
    ...{ client, plane: flags.plane, known, leads },
    proxy: { url: flags['proxy-url'], ca: () => String(proxyTls().ca ?? '') },
    failed: (object, error) => warn(`ClusterProfile ${object}`, 'its ClusterProfile cannot be written', error),
  });
  const writer = new StatusWriter({
    ...{ client, known, leads },
    access: (name) => profiles.access(name),
    failed: (object, error) => warn(`status of ${object}`, `the status of ${object} cannot be written`, error),
  });
  let asked = Number.NEGATIVE_INFINITY;
  let plane: PlaneSays | undefined;
  const rounds = periodic(
    async (signal) => {
      if (!leads()) return SYNC.graceLookMs;
      if (flags.member !== '' && performance.now() - asked >= SYNC.askMs) {
        asked = performance.now();
        plane = await askMember({ address: flags.member, tls: memberTls }).catch((error: Error) => {
          warn(flags.member, `${flags.member} does not say who is connected`, error);
          return undefined;
        });
      }
      await writer.write(sync.verdicts, plane, signal);
      await profiles.write(sync.verdicts, performance.now(), signal);
      return SYNC.statusMs;
    },
    (error) => {
      warn('status', 'no status is written', error as Error);
      return SYNC.statusMs;
    },
  );
  return async () => {
    await rounds[Symbol.asyncDispose]();
    await leader[Symbol.asyncDispose]();
  };
}

const UNREAD = 'cannot be read, what is known stays';

/** Of which one sync of a plane holds the only one. */
const LEASE = 'isthmus-tenants-sync';

function tell(log: ProgramLogger, name: string, verdict: Verdict | undefined): void {
  if (!verdict) log.warn({ object: name }, 'the tenant is removed');
  else {
    const { source, tenant, kept } = verdict;
    const fields = { object: `${source.kind} ${name}`, tenant };
    if (verdict.fault === undefined) log.info(fields, 'the tenant is written');
    else
      log.warn({ ...fields, fault: verdict.fault }, kept ? 'not in force, the last good state stays' : 'not in force');
  }
}

export function runSync(): Promise<void> {
  return runProgram({
    ...isthmusTenantsSync,
    carries: false,
    log: ({ v, 'log-format': format }) => createLogger({ name: 'isthmus-tenants-sync', format, verbosity: v }),
    start: startSync,
  });
}
