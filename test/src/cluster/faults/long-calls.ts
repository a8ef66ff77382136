import { randomBytes } from 'node:crypto';
import type { Scope } from '../../harness/index.ts';
import { type Command, must } from '../command.ts';
import { kubectlArgs } from '../kubectl.ts';
import { GROUP, inProbe } from '../probe.ts';
import { Session } from '../session.ts';

const EXECS = 3;
/** What an exec that was not cut ends with. kubectl says 0 of one that was. */
const CODE = 7;
/** How many more lines a call prints that is taken to stand: more than may be under way from a pod whose agent is gone. */
const MORE_LINES = 10;
const WATCH = `/apis/${GROUP}/v1/visits?watch=1`;

/** What became of the calls that were to last. */
export interface LongFigures {
  readonly calls: number;
  /** The kinds of those that ended early, lost something, or ended with another status than their command's. */
  readonly cut: readonly string[];
}

/** Calls that last as long as a fault does: execs, `logs -f` of a fast writer, a port-forward and a watch of an aggregated API. */
export interface LongCalls {
  /** Ends the execs, and says what became of all. */
  end(): Promise<LongFigures>;
}

/**
 * Resolves once they stand.
 * @param apiServers where the execs are, one after the other. Default: where kubectl finds an API server
 */
export async function longCalls(scope: Scope, pod: string, apiServers: readonly string[] = []): Promise<LongCalls> {
  // The execs end once this file is there.
  const over = `/tmp/over-${randomBytes(4).toString('hex')}`;
  const script = `i=0; until [ -e ${over} ]; do echo $((i+=1)); sleep 0.5; done; exit ${CODE}`;
  const exec = (index: number): Command => {
    const address = apiServers[index % apiServers.length];
    const server = address ? [`--server=https://${address}:6443`] : [];
    return inProbe(...server, 'exec', pod, '--', 'sh', '-c', script);
  };
  const forward = new Session(scope, inProbe('port-forward', pod, ':8080'));
  const [, at] = await forward.line(/^Forwarding from (127\.0\.0\.1:\d+)/);
  const begin = (kind: string, first: RegExp, command: Command) => ({
    kind,
    first,
    session: new Session(scope, command),
  });
  const calls = [
    ...Array.from({ length: EXECS }, (_, index) => begin('exec', /^1$/, exec(index))),
    begin('logs -f', /^line \d+ /, inProbe('logs', '-f', '--tail=1', 'deployment/writer')),
    begin('port-forward', /MODIFIED/, ['curl', '--silent', '--no-buffer', `http://${at}${WATCH}`]),
    begin('watch', /MODIFIED/, kubectlArgs(['get', '--raw', WATCH])),
  ];
  await Promise.all(calls.map(({ session, first }) => session.line(first)));
  return {
    async end() {
      const stand = await Promise.all(calls.map(({ session }) => isWhole(session)));
      await must(inProbe('exec', pod, '--', 'touch', over));
      const codes = await Promise.all(calls.map(({ kind, session }) => (kind === 'exec' ? session.code() : CODE)));
      const cut = calls.filter((_, index) => !stand[index] || codes[index] !== CODE);
      return { calls: calls.length, cut: cut.map(({ kind }) => kind) };
    },
  };
}

/** Whether it goes on, and has lost no line of those that have numbers. */
async function isWhole(session: Session): Promise<boolean> {
  const goesOn = await session.goesOn(MORE_LINES);
  const numbers = session.lines.flatMap((line) => line.match(/^(?:line )?(\d+)\b/)?.[1] ?? []).map(Number);
  return goesOn && numbers.every((number, index) => number === (numbers[0] ?? 0) + index);
}
