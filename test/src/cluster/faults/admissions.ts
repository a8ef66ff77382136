import { setTimeout as sleep } from 'node:timers/promises';
import type { Scope } from '../../harness/index.ts';
import { kubectlArgs } from '../kubectl.ts';
import { NAMESPACE } from '../probe.ts';
import { repeat, Session } from '../session.ts';

/** What the probe's two webhooks are for (test/cluster/probe.yaml): if it does not answer, the one for config maps refuses, the other is skipped. */
const KINDS = { configmaps: 'ConfigMap', secrets: 'Secret' } as const;
const EVERY_MS = 200;
/** An API server waits 10 s for a webhook. */
const ANSWER_MS = 30_000;

/** Objects that were to be admitted by webhooks. */
export interface AdmissionFigures {
  readonly asked: number;
  /** Why those failed that were refused, or admitted without their webhook. */
  readonly failed: readonly string[];
  /** Those that failed because what carried them was killed. They are not among the failed. */
  readonly underWay: number;
}

interface Failure {
  /** On the clock of `performance.now()`. */
  readonly time: number;
  readonly reason: string;
}

/** A time, from and to, on the same clock. */
export type Span = readonly [from: number, to: number];

/** Asks the API server again and again to admit an object of each kind, without keeping it. What no API server answers is not counted. */
export async function admissions(scope: Scope) {
  const failures: Failure[] = [];
  let asked = 0;
  const proxy = new Session(scope, kubectlArgs(['proxy', '--port=0']));
  const [, at] = await proxy.line(/^Starting to serve on (\S+)/);
  const ask = async (resource: string, kind: string) => {
    const answer = await post(`http://${at}/api/v1/namespaces/${NAMESPACE}/${resource}?dryRun=All`, kind);
    if (!answer) return;
    asked += 1;
    if (answer.status === 201 && answer.seen) return;
    const why = answer.status === 201 ? 'admitted without its webhook' : `status ${answer.status}, ${answer.text}`;
    failures.push({ time: performance.now(), reason: `at ${new Date().toISOString()}, a ${kind}: ${why}` });
  };
  const stop = repeat(scope, async () => {
    await Promise.all(Object.entries(KINDS).map((each) => ask(...each)));
    await sleep(EVERY_MS);
  });
  return {
    /** @param excused when an admission may fail, because what carries it ends or is away */
    async end(excused: readonly Span[]): Promise<AdmissionFigures> {
      await stop();
      const struck = ({ time }: Failure) => excused.some(([from, to]) => time >= from && time <= to);
      const failed = failures.filter((failure) => !struck(failure)).map(({ reason }) => reason);
      return { asked, failed, underWay: failures.length - failed.length };
    },
  };
}

/** Returns undefined if no API server answers. */
async function post(url: string, kind: string) {
  const body = JSON.stringify({ apiVersion: 'v1', kind, metadata: { name: 'asked' } });
  const headers = { 'content-type': 'application/json' };
  try {
    const answer = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(ANSWER_MS) });
    const text = (await answer.text()).slice(0, 400);
    const seen = /seen by the probe/.test(answer.headers.get('warning') ?? '');
    // API servers send this header with each answer. `kubectl proxy` says without it, with 500, that none answers.
    return answer.headers.has('audit-id') ? { status: answer.status, text, seen } : undefined;
  } catch {
    return undefined;
  }
}
