import { Scope, until } from '../../harness/index.ts';
import { run } from '../command.ts';
import { apiAvailable, inProbe } from '../probe.ts';
import { repeat } from '../session.ts';
import type { Replaced, Strike } from '../static-pods.ts';
import type { Fault, Ground } from '../step.ts';
import type { Way } from '../way.ts';
import { type AdmissionFigures, admissions, type Span } from './admissions.ts';
import { type LongFigures, longCalls } from './long-calls.ts';

const CALL_MS = 60_000;
/** Calls before a fault. */
const CALLS_BEFORE = 3;
/** Calls after a fault is over, which find what it has left behind. */
const CALLS_AFTER = 10;

/** A tunnel ends within 5 s of its agent (docs/RESUME.md, "Dead or cut off"), and the API server says so within a second. */
const CUT_MS = 6000;
/** A server that is to end serves for 5 s more (`--shutdown-delay-duration`), and an API server waits 10 s for a webhook. */
const IN_VAIN_MS = 15_000;
/** Agents are back so long after the next server. */
const BACK_MS = 2000;

/** Why a call failed that says nothing. */
const SILENT = 'status 0, and no answer';

interface Failure {
  /** When it began and failed, on the clock of `performance.now()`. */
  readonly from: number;
  readonly to: number;
  /** When it failed, as logs have it. */
  readonly at: string;
  readonly reason: string;
}

/** What a load met. */
export interface Figures {
  readonly calls: number;
  readonly failed: number;
  /** Calls that failed because what carried them was killed. They are not among the failed. */
  readonly underWay: number;
  /** The longest call, in milliseconds. */
  readonly longest: number;
  readonly long: LongFigures;
  readonly admissions: AdmissionFigures;
  /** The first of what should not have happened: what kubectl said when a call failed, and when; a cut; an admission that failed. */
  readonly reason: string | undefined;
}

/** A fault, and what callers met of it. */
export interface Outcome {
  readonly way: Way;
  readonly fault: string;
  readonly figures: Figures;
}

/** Commits a fault. @returns what callers met of it: `kubectl exec` and admissions again and again, and long calls that stay */
export async function underLoad(fault: Fault, ground: Ground): Promise<Figures> {
  const putBack = await fault.instead?.();
  try {
    // What was done before may have left an API server in doubt of it for some seconds.
    await apiAvailable();
    return await committed(fault, ground);
  } finally {
    await putBack?.();
  }
}

async function committed(fault: Fault, ground: Ground): Promise<Figures> {
  await using scope = new Scope();
  const longs = await longCalls(scope, ground.pod, ground.way.apiServers);
  const admitted = await admissions(scope);
  const execs = calls(scope, ground.pod);
  await execs.more(CALLS_BEFORE);
  const [strikes, excused]: [Span[], Span[]] = [[], []];
  const strike: Strike = async (kill) => {
    const from = performance.now();
    await kill();
    const to = performance.now();
    strikes.push([from, to]);
    if (fault.mayCutAdmissions) excused.push([from, to + CUT_MS]);
  };
  // The kubelet looks up to 15 s later whether the old static pod has ended. Admissions that were asked meanwhile may wait in vain.
  const replaced: Replaced = (from, to) => excused.push([from + IN_VAIN_MS, to + BACK_MS]);
  await fault.commit({ ...ground, strike, replaced });
  await execs.more(CALLS_AFTER);

  const { count, failures, longest } = await execs.end();
  const long = await longs.end();
  const { mayFail, oneSilent, mayCut } = fault;
  const objects = await admitted.end(excused);
  const wasUnderWay = (failure: Failure) => strikes.some(([from, to]) => failure.from <= to && failure.to >= from);
  const failed = failures.filter((failure) => !wasUnderWay(failure));
  const silent = failed.find(({ reason }) => oneSilent && reason === SILENT);
  const first = failed.find((each) => each !== silent && !mayFail?.test(each.reason));
  const cut = long.cut.length > 0 && !mayCut ? `cut: ${long.cut.join(', ')}` : undefined;
  const refused = mayFail ? undefined : objects.failed[0];
  const reason = first ? `at ${first.at}, ${first.reason}` : (cut ?? refused);
  const underWay = failures.length - failed.length;
  return { calls: count, failed: failed.length, underWay, longest, long, admissions: objects, reason };
}

/** `kubectl exec`, again and again. */
function calls(scope: Scope, pod: string) {
  const failures: Failure[] = [];
  let [count, longest] = [0, 0];
  const stop = repeat(scope, async () => {
    const from = performance.now();
    const { status, stdout, stderr } = await run(inProbe('exec', pod, '--', 'echo', 'ok'), { deadline: CALL_MS });
    const to = performance.now();
    count += 1;
    longest = Math.max(longest, to - from);
    if (status === 0 && stdout === 'ok\n') return;
    // kubectl ends with 0 if the connection goes before the answer.
    const reason = stderr.trim().split('\n').at(-1) || (status === 0 ? SILENT : `status ${status}, and no answer`);
    failures.push({ from, to, at: new Date().toISOString(), reason });
  });
  return {
    /** Waits for this many more calls. */
    more(more: number): Promise<unknown> {
      const last = count + more;
      return until(() => count >= last, { what: `${more} calls`, deadline: more * CALL_MS });
    },
    async end() {
      await stop();
      return { count, failures, longest };
    },
  };
}
