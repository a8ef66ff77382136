import { once } from 'node:events';
import { Argument, Option } from 'commander';
import { duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { EXIT, Failure, messageOf } from '../exit.ts';

interface Options {
  readonly wait: number;
}

export const hold = command({
  name: 'hold',
  summary: 'Listen on a unix socket for a server that restarts: connections wait for it',
  details:
    'For API servers that dial by HTTP CONNECT over a unix socket: they fail at once while nobody listens, and a static pod takes the kubelet 10 s to replace. Runs beside the server until SIGTERM; then it accepts no more connections, and ends with the last.',
  args: [
    new Argument('<socket>', 'what API servers connect to'),
    new Argument('<server>', "the server's own socket, its --uds-name"),
  ],
  options: [
    new Option('--wait <duration>', 'how long a connection waits for the server')
      .default(30_000, '30s')
      .argParser(duration),
  ],
  examples: [
    {
      line: 'hold /run/k/api.sock /run/k/server.sock',
      does: 'the API server dials api.sock, proxy-server has server.sock',
    },
  ],
  async run({ args: [path = '', server = ''], options, terminal }: Call<Options>) {
    const { HeldSocket } = await import('../hold/held-socket.ts');
    const tell = (text: string) => terminal.err(`isthmus: ${text}\n`);
    const stop = await HeldSocket.open({ path, server, waitMs: options.wait, tell }).catch((error: unknown) => {
      throw new Failure(EXIT.wrong, messageOf(error as Error));
    });
    tell(`${path} is open: connections go to ${server}`);
    if (!terminal.interrupted.aborted) await once(terminal.interrupted, 'abort');
    await stop();
    return EXIT.good;
  },
});
