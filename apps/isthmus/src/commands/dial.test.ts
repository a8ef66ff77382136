import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { EXIT, styleOf } from '../output.ts';
import { run } from '../program.ts';
import { TestTerminal } from '../testing/test-terminal.ts';
import { dialFromHere, series, seriesText, summaryOf } from './dial.ts';
import { type DialView, dialText } from './dial-text.ts';

describe('dial', () => {
  let server: Server;
  let port: number;
  /** What the server does with a connection. */
  let greets = true;

  before(async () => {
    server = createServer((socket) => socket.on('error', () => {}).end(greets ? 'hello' : '')).listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  after(() => server.close());

  const closedPort = async () => {
    const free = createServer().listen(0, '127.0.0.1');
    await once(free, 'listening');
    const { port: closed } = free.address() as AddressInfo;
    free.close();
    await once(free, 'close');
    return closed;
  };
  const here = (destination: string) => dialFromHere({ destination, withinMs: 60_000, firstByteMs: 60_000 });

  describe('a dial from this machine', () => {
    it('says how long each part took', async () => {
      greets = true;
      const view = await here(`localhost:${port}`);
      assert.equal(view.ok, true, JSON.stringify(view.error));
      assert.deepEqual(
        view.phases.map(({ name }) => name),
        ['here', 'dns', 'connect', 'first_byte'],
      );
      const shown = dialText(view, styleOf(false));
      assert.match(shown, /^localhost:\d+ answers from here: .*\n\nhere /, 'there are no ids to show');
    });

    it('says that the destination closed before it sent a byte', async () => {
      greets = false;
      const { ok, ended } = await here(`127.0.0.1:${port}`);
      assert.deepEqual([ok, ended], [false, 'closed by the destination']);
    });

    it('fails if the byte that it waits for does not come', async () => {
      const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
      await once(silent, 'listening');
      const place = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
      const asked = async (...more: string[]) => {
        const terminal = new TestTerminal(['dial', place, '--from', 'here', ...more]);
        return [await run(terminal), terminal.stdout.replaceAll(/[\d.]+ ms/g, 'N ms')];
      };
      try {
        const [status, says] = await asked('--first-byte', '20ms');
        assert.equal(status, EXIT.wrong);
        assert.match(String(says), /accepts from here after N ms, and sends no byte within N ms\n/);
        const [both, lines] = await asked('--first-byte', '20ms', '--count', '2', '--interval', '1ms');
        assert.equal(both, EXIT.wrong);
        assert.match(String(lines), /\n2 dials, 2 failed \(2 no_first_byte\)\n$/);
        assert.equal((await asked())[0], EXIT.good, 'nobody waits for a byte');
      } finally {
        silent.close();
      }
    });

    it('says why it failed, by the names that a plane has', async () => {
      assert.equal((await here(`127.0.0.1:${await closedPort()}`)).error?.code, 'connection_refused');
      assert.match((await here('nowhere.invalid:1')).error?.code ?? '', /^dns_/);
    });

    it('says that it was refused, also if the deadline passes before that is said', async (context) => {
      const deadline = new AbortController();
      const { signal } = deadline;
      context.mock.method(AbortSignal, 'timeout', () => signal);
      const { removeEventListener } = signal;
      let over = false;
      context.mock.method(signal, 'removeEventListener', (...args: Parameters<typeof removeEventListener>) => {
        over = true;
        removeEventListener.apply(signal, args);
      });
      const { now } = performance;
      let taken = 0;
      // The time is taken when the phase has failed, and then for the whole dial.
      context.mock.method(performance, 'now', () => {
        if (over && ++taken === 2) deadline.abort();
        return now.call(performance);
      });
      const { error } = await here(`127.0.0.1:${await closedPort()}`);
      context.mock.restoreAll();
      assert.deepEqual([signal.aborted, error?.code], [true, 'connection_refused']);
    });

    it('needs no plane, and no gateway', async () => {
      greets = true;
      const terminal = new TestTerminal(['dial', `127.0.0.1:${port}`, '--from', 'here', '-a', '127.0.0.1:1']);
      assert.equal(await run(terminal), EXIT.good, terminal.stderr);
      const both = new TestTerminal(['dial', 'a:1', '--from', 'here', '--agent', 'x']);
      assert.equal(await run(both), EXIT.usage);
      assert.match(both.stderr, /--from here dials past gateways and agents/);
    });
  });

  describe('a series of dials', () => {
    const signal = new AbortController().signal;
    const failed = { code: 'connection_refused', text: 'refused', advice: [] };
    const view = (ms: number, agent: string, ok = true) =>
      ({ ms, agent, ok, ...(ok ? {} : { error: failed }) }) as unknown as DialView;

    it('dials so often, and not after an interrupt', async () => {
      const seen = async (count: number, stop?: AbortController) => {
        let dials = 0;
        for await (const _ of series(async () => view(1, 'a'), {
          count,
          intervalMs: 1,
          signal: stop?.signal ?? signal,
        })) {
          if (++dials === 2) stop?.abort();
        }
        return dials;
      };
      assert.deepEqual([await seen(1), await seen(5), await seen(5, new AbortController())], [1, 5, 2]);
    });

    it('ends with percentiles, what failed, and which agents took the others', () => {
      const dials = Array.from({ length: 100 }, (_, index) => view(index + 1, index < 60 ? 'a' : 'b'));
      const summary = summaryOf([...dials, view(9999, '', false)]);
      const { minMs, p50Ms, p90Ms, p99Ms, maxMs } = summary;
      assert.deepEqual([minMs, p50Ms, p90Ms, p99Ms, maxMs], [1, 50, 90, 99, 100]);
      assert.equal(
        seriesText(summary, styleOf(false)),
        [
          '',
          '101 dials, 1 failed (1 connection_refused)',
          'through a (60), b (40)',
          'min 1.0 ms   p50 50.0 ms   p90 90.0 ms   p99 99.0 ms   max 100 ms',
          '',
        ].join('\n'),
      );
      assert.equal(
        seriesText(summaryOf([view(5, '', false)]), styleOf(false)),
        '\n1 dial, 1 failed (1 connection_refused)\n',
      );
    });

    it('is one document for programs, and lines for people', async () => {
      const terminal = (...more: string[]) =>
        new TestTerminal(['dial', `127.0.0.1:${port}`, '--from', 'here', '--count', '3', '--interval', '1ms', ...more]);
      const people = terminal();
      assert.equal(await run(people), EXIT.good);
      assert.match(people.stdout, /^(\S+Z +\S+ ms from here {2}ok\n){3}\n3 dials, none failed\nmin .* max .*\n$/);
      const programs = terminal('-o', 'json');
      await run(programs);
      const { dials, summary } = JSON.parse(programs.stdout) as { dials: unknown[]; summary: { dials: number } };
      assert.deepEqual([dials.length, summary.dials], [3, 3]);
      const yaml = terminal('-o', 'yaml');
      await run(yaml);
      assert.match(yaml.stdout, /^destination: 127[\s\S]*\n {2}dials: 3\n/);
    });
  });
});
