import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { type Scope, until, within } from '../../harness/index.ts';
import type { SourceReport, SourceSettings } from './source.ts';
import type { SwarmReport, SwarmSettings } from './swarm.ts';

/** A process of the load, and its last report. */
class Reporting<Report> implements AsyncDisposable {
  report: Report | undefined;
  readonly #child: ChildProcess;

  constructor(file: string, settings: object) {
    this.#child = fork(fileURLToPath(new URL(file, import.meta.url)));
    this.#child.on('message', (report) => {
      this.report = report as Report;
    });
    this.#child.send(settings);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    process.kill(this.pid, 'SIGKILL');
    await within(gone, { what: `the end of ${this.pid}` });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}

export type Source = Reporting<SourceReport>;
export type Swarm = Reporting<SwarmReport>;

/** Starts destinations that send without end, or never read. Resolves once they can be dialled. */
export async function startSource(scope: Scope, settings: SourceSettings): Promise<Source> {
  const source = scope.use(new Reporting<SourceReport>('./source.ts', settings));
  await until(() => source.report, { what: 'a source of bytes' });
  return source;
}

/** Starts a caller that holds many tunnels. Resolves once all are open. */
export async function startSwarm(scope: Scope, settings: SwarmSettings): Promise<Swarm> {
  const swarm = scope.use(new Reporting<SwarmReport>('./swarm.ts', settings));
  const all = () => {
    if (swarm.report?.error) return 'failed';
    return swarm.report?.opened === settings.tunnels;
  };
  await until(all, {
    deadline: 60_000,
    what: () => `${settings.tunnels} tunnels: ${swarm.report?.opened ?? 0} are open`,
  });
  if (swarm.report?.error) throw new Error(`a tunnel of the swarm could not be opened: ${swarm.report.error}`);
  return swarm;
}
