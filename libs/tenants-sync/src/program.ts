import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { isthmusTenantsSync, type SyncValues } from '@isthmus/flags';
import { inClusterConnection, kubeClient, kubeconfigFile } from '@isthmus/kube';
import { randomHex } from '@isthmus/runtime';
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
import { syncMetrics } from './metrics.ts';
import { Report } from './report.ts';
import { Sync, type Verdict } from './sync.ts';
import { Watching } from './watching.ts';

function startSync(flags: SyncValues, { log }: Context<ProgramLogger>): Promise<Running> {
  return Closing.guard(async (closing) => {
    const now = () => performance.now();
    const directory = new Directory(flags['tenants-dir'] || flags.out);
    const source = flags.kubeconfig === '' ? inClusterConnection() : kubeconfigFile(flags.kubeconfig);
    const client = await kubeClient({ source, qps: SYNC.qps, burst: SYNC.burst, rateName: 'isthmus tenants sync' });
    closing.defer(() => client[Symbol.dispose]());
    const failures = new Map<string, string>();
    const ended = new AbortController();
    /** Wakes the writer. */
    let wake = () => {};
    let listed = false;
    let ready = false;
    const watching = new Watching({
      ...{ client, now, plane: flags.plane, from: flags.from as readonly From[], namespace: flags.namespace },
      agents: {
        namespace: flags['agent-namespace'],
        serviceAccount: flags['agent-service-account'],
        audience: flags['authentication-audience'],
      },
      changed(name, gone) {
        sync.changed(name, gone);
        wake();
      },
      changedValues(name) {
        sync.changedValues(name);
        wake();
      },
      failed(what, error) {
        if (!error) return void failures.delete(what);
        const text = inWords(error);
        if (failures.get(what) !== text) log.warn({ what }, `cannot be read, what is known stays: ${text}`);
        failures.set(what, text);
      },
      listed() {
        listed = true;
        wake();
      },
    });
    const sync: Sync = new Sync({
      ...{ directory, now, graceMs: flags.grace, stores: watching.stores },
      sources: (name) => watching.sources(name),
      changed: (name, verdict, fault) => tell(log, name, verdict, fault),
    });
    await sync.load((origin) => watching.assume(origin));
    const report = new Report(directory, flags.plane);
    const checks = (): Check[] => [
      {
        name: 'objects',
        ok: ready,
        detail: ready ? `${sync.written} tenants written` : `not read yet: ${watching.unlisted.join(', ')}`,
      },
      { name: 'api-server', ok: true, detail: [...failures].map(([what, text]) => `${what}: ${text}`).join('; ') },
    ];
    const health = await serveHealth({
      ...{ host: flags['health-bind-address'], port: flags['health-port'], unready: SERVER_UNREADY, checks },
      metrics: syncMetrics(sync),
    });
    closing.defer(health.close);
    closing.defer(() => watching[Symbol.asyncDispose]());
    watching.start();

    const write = async () => {
      await sync.flush();
      report.write(sync.verdicts, sync.written, now());
      if (!ready) log.info({ tenants: sync.written }, 'tenants are written');
      ready = true;
    };
    const writing = (async () => {
      while (!ended.signal.aborted) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        // Nothing is written before all is known: what comes first is not what is older.
        if (listed) await write().catch((error) => log.error({}, `the directory cannot be written: ${inWords(error)}`));
        const pause = sleep(SYNC.graceLookMs, undefined, { signal: ended.signal }).catch(() => {});
        await Promise.race([woken, pause]);
        await sleep(SYNC.gatherMs, undefined, { signal: ended.signal }).catch(() => {});
      }
    })();
    closing.defer(async () => {
      ended.abort();
      await writing;
    });
    log.info(
      { version: VERSION, plane: flags.plane, from: flags.from, instance: `${hostname()}-${randomHex(4)}` },
      'following objects',
    );
    return { drain: async () => {}, close: () => closing.close() };
  });
}

function tell(log: ProgramLogger, name: string, verdict: Verdict | undefined, fault: Error | undefined): void {
  if (fault) log.error({ object: name }, `the tenant cannot be written: ${inWords(fault)}`);
  else if (!verdict) log.warn({ object: name }, 'the tenant is removed');
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
    log: ({ v, 'log-format': format }) => createLogger({ name: 'isthmus-tenants-sync', format, verbosity: v }),
    start: startSync,
  });
}
