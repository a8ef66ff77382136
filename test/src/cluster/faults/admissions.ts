import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { parse } from 'yaml';
import { NAMESPACE } from '../probe.ts';

/** What the probe's two webhooks are for (test/cluster/probe.yaml): if it does not answer, the one for config maps refuses, the other is skipped. */
const KINDS = { configmaps: 'ConfigMap', secrets: 'Secret' } as const;
const EVERY_MS = 200;
/** An API server waits 10 s for a webhook. */
const ANSWER_MS = 30_000;
/** How long the API server takes to say that its connection to a webhook was cut: less than any wait for another. */
const CUT_MS = 1000;

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

/** A time in which something was killed, from and to, on the same clock. */
export type Strike = readonly [from: number, to: number];

/** Asks the API server again and again to admit an object of each kind, without keeping it. What no API server answers is not counted. */
export class Admissions {
  readonly #agent: Agent;
  readonly #server: string;
  readonly #failures: Failure[] = [];
  #asked = 0;
  #over = false;
  readonly #loop: Promise<void>;

  constructor() {
    const { clusters, users } = parse(readFileSync('/etc/kubernetes/admin.conf', 'utf8'));
    const data = (text: string) => Buffer.from(text, 'base64');
    this.#server = clusters[0].cluster.server;
    this.#agent = new Agent({
      ca: data(clusters[0].cluster['certificate-authority-data']),
      cert: data(users[0].user['client-certificate-data']),
      key: data(users[0].user['client-key-data']),
      keepAlive: true,
    });
    this.#loop = this.#asking();
  }

  /** @param strikes that end what carries admissions */
  async end(strikes: readonly Strike[] = []): Promise<AdmissionFigures> {
    this.#over = true;
    await this.#loop;
    this.#agent.destroy();
    const struck = ({ time }: Failure) => strikes.some(([from, to]) => time >= from && time <= to + CUT_MS);
    const failed = this.#failures.filter((failure) => !struck(failure)).map(({ reason }) => reason);
    return { asked: this.#asked, failed, underWay: this.#failures.length - failed.length };
  }

  async #asking(): Promise<void> {
    while (!this.#over) {
      await Promise.all(Object.entries(KINDS).map(([resource, kind]) => this.#ask(resource, kind)));
      await sleep(EVERY_MS);
    }
  }

  async #ask(resource: string, kind: string): Promise<void> {
    const asking = request(`${this.#server}/api/v1/namespaces/${NAMESPACE}/${resource}?dryRun=All`, {
      agent: this.#agent,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      timeout: ANSWER_MS,
    });
    asking.on('error', () => {}).once('timeout', () => asking.destroy());
    asking.end(JSON.stringify({ apiVersion: 'v1', kind, metadata: { name: 'asked' } }));
    try {
      const [answer] = (await once(asking, 'response')) as [IncomingMessage];
      let text = '';
      for await (const chunk of answer.setEncoding('utf8')) text += chunk;
      this.#asked += 1;
      const seen = /seen by the probe/.test(answer.headers.warning ?? '');
      const at = new Date().toISOString();
      if (answer.statusCode !== 201)
        this.#fail(`at ${at}, a ${kind}: status ${answer.statusCode}, ${text.slice(0, 400)}`);
      else if (!seen) this.#fail(`at ${at}, a ${kind}: admitted without its webhook`);
    } catch {
      // The API server is away.
    }
  }

  #fail(reason: string): void {
    this.#failures.push({ time: performance.now(), reason });
  }
}
