import { writeFile } from 'node:fs/promises';
import { stringify } from 'yaml';
import { type Flags, freePort, type Program, type Scope, startCommand, tempDir } from '../harness/index.ts';
import { prometheus } from './promtool.ts';

/** One series of an answer: its labels, and its value now. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

interface PrometheusOptions {
  readonly everySeconds: number;
  readonly scrapes: readonly object[];
  readonly flags?: Flags;
}

/** Starts a Prometheus. @returns its port */
export async function startPrometheus(
  scope: Scope,
  { everySeconds, scrapes, flags }: PrometheusOptions,
): Promise<number> {
  const directory = await tempDir(scope);
  const every = `${everySeconds}s`;
  const config = { global: { scrape_interval: every, scrape_timeout: every }, scrape_configs: scrapes };
  await writeFile(`${directory}/prometheus.yaml`, stringify(config));
  const port = await freePort();
  startCommand(scope, [prometheus as string], {
    flags: {
      'config.file': `${directory}/prometheus.yaml`,
      'storage.tsdb.path': `${directory}/data`,
      'web.listen-address': `127.0.0.1:${port}`,
      ...flags,
    },
  });
  return port;
}

/** A Prometheus that scrapes programs of a plane, as jobs by the names of the programs. A busy program needs a moment for its page. */
export class Scraper {
  readonly #port: number;

  private constructor(port: number) {
    this.#port = port;
  }

  static async start(scope: Scope, jobs: Readonly<Record<string, readonly Program[]>>): Promise<Scraper> {
    const scrapes = Object.entries(jobs).map(([job, programs]) => ({
      job_name: job,
      static_configs: [{ targets: programs.map(({ healthPort }) => `127.0.0.1:${healthPort}`) }],
    }));
    return new Scraper(await startPrometheus(scope, { everySeconds: 3, scrapes }));
  }

  /** Returns the samples that a query has now, without those that are no number. @throws Error with Prometheus' words */
  async query(expr: string): Promise<Sample[]> {
    const url = `http://127.0.0.1:${this.#port}/api/v1/query?query=${encodeURIComponent(expr)}`;
    const response = await fetch(url, { headers: { connection: 'close' } });
    const { data, error } = (await response.json()) as Answer;
    if (!data) throw new Error(`${expr}: ${error}`);
    const samples = data.result.map(({ metric, value: [, value] }) => ({ metric, value: Number(value) }));
    return samples.filter(({ value }) => !Number.isNaN(value));
  }
}

interface Answer {
  readonly error?: string;
  readonly data?: {
    readonly result: readonly { readonly metric: Sample['metric']; readonly value: readonly [number, string] }[];
  };
}
