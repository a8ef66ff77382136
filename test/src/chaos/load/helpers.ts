import { type ChildProcess, fork } from 'node:child_process';
import { killChild, type Scope, until } from '../../harness/index.ts';
import type { SourceReport, SourceSettings } from './source.ts';
import type { SwarmReport, SwarmSettings } from './swarm.ts';

/** A process of the load, and its last report. */
class Reporting<Report> {
  report: Report | undefined;
  readonly #child: ChildProcess;

  constructor(scope: Scope, file: string, settings: object) {
    this.#child = fork(new URL(file, import.meta.url));
    this.#child.on('message', (report) => {
      this.report = report as Report;
    });
    this.#child.send(settings);
    scope.defer(() => this.kill());
  }

  kill(): Promise<void> {
    return killChild(this.#child);
  }
}

export type Source = Reporting<SourceReport>;
export type Swarm = Reporting<SwarmReport>;

/** Starts destinations that send without end, or never read. Resolves once they can be dialled. */
export async function startSource(scope: Scope, settings: SourceSettings): Promise<Source> {
  const source = new Reporting<SourceReport>(scope, './source.ts', settings);
  await until(() => source.report, { what: 'a source of bytes' });
  return source;
}

/** Starts a caller that holds many tunnels. Resolves once all are open. */
export async function startSwarm(scope: Scope, settings: SwarmSettings): Promise<Swarm> {
  const swarm = new Reporting<SwarmReport>(scope, './swarm.ts', settings);
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
