import type { Socket } from 'node:net';
import process from 'node:process';
import { finished } from 'node:stream/promises';
import { inWords } from '@isthmus/tunnel';
import { Option } from 'commander';
import { type Call, command, destinationArgument } from '../command.ts';
import { Kubeconfig, kubeContext, readCredentials, urlOf } from '../kubeconfig.ts';
import { EXIT, Failure, usage } from '../output.ts';
import { bare, opened, resolved, secured, tunnelled } from '../through-gateway.ts';
import { kubeconfigOption, tokenIn } from './login.ts';

interface Options {
  readonly gateway?: string;
  readonly tokenFile?: string;
  readonly kubeconfig?: string;
}

export const nc = command({
  name: 'nc',
  summary: 'Connect standard input and output to a destination, through a tunnel of a gateway',
  details:
    "A caller's tunnel: with the proxy-url and CA data of a kubeconfig context, or with --gateway, --ca, and a token of --tenant, or a caller's --cert and --key. The end of the input ends one direction; the tunnel ends when the destination ends the other. Exits with 1 if it learns that the tunnel was cut; the death of a gateway may look like an orderly end.",
  args: [destinationArgument()],
  options: [
    new Option('--gateway <url>', "the gateway's port for callers, instead of a context's proxy-url"),
    new Option('--token-file <file>', 'with --gateway: the token of --tenant'),
    kubeconfigOption,
  ],
  examples: {
    'nc db.internal:3306': 'through the gateway of the current context',
    'nc 10.20.3.4:22 --gateway https://gw.example:8090 --ca ca.pem --cert caller.pem --key caller-key.pem':
      "as ssh's ProxyCommand, with %h:%p",
  },
  asksNobody: () => true,
  async run(call: Call<Options>) {
    const sockets: Socket[] = [];
    try {
      const tunnel = await tunnelOf(call, sockets).catch((error) => {
        if (error instanceof Failure) throw error;
        const todo = (error as { todo?: string }).todo;
        throw new Failure(EXIT.wrong, todo === undefined ? inWords(error) : `${inWords(error)}: ${todo}`);
      });
      await carried(tunnel, call.terminal.interrupted);
      return EXIT.good;
    } finally {
      for (const socket of sockets) socket.destroy();
      // Paused, it does not keep the process. Destroyed, it would leave its descriptor to the next file or socket.
      process.stdin.unpipe().pause();
    }
  },
});

async function tunnelOf(call: Call<Options>, sockets: Socket[]): Promise<Socket> {
  const { args, options, terminal } = call;
  const { proxy, ...trusted } = await gatewayOf(call);
  const signal = AbortSignal.any([terminal.interrupted, AbortSignal.timeout(options.timeout)]);
  const host = bare(proxy.hostname);
  const secure = proxy.protocol === 'https:';
  const { addresses } = await resolved(host, signal);
  const { socket } = await opened(addresses, Number(proxy.port || (secure ? 443 : 80)), sockets, signal);
  const gateway = secure ? (await secured(socket, host, trusted, sockets, signal)).socket : socket;
  await tunnelled(gateway, proxy, args[0] ?? '', signal);
  return gateway;
}

/** Whom to ask, and what its TLS stands on. */
async function gatewayOf(call: Call<Options>) {
  const { options, terminal } = call;
  const { gateway, tokenFile, tenant } = options;
  if (gateway === undefined) {
    const unused = ['--token-file', '--ca', '--cert', '--key', '--tenant'].find(call.given);
    if (unused !== undefined)
      throw usage(`${unused} goes with --gateway: a context has its own token, CA, certificate and tenant`);
    const config = Kubeconfig.read(Kubeconfig.locate(terminal, options.kubeconfig));
    const context = await kubeContext(config, options.context);
    if (!context.proxy) throw usage(`context ${context.context} has no proxy-url: isthmus login, or --gateway URL`);
    return { ...context, proxy: context.proxy };
  }
  if (options.context !== undefined) throw usage('--context names a context, and --gateway replaces one: give one');
  const proxy = urlOf('--gateway', gateway);
  if (tokenFile !== undefined) {
    if (tenant === '') throw usage('--token-file needs --tenant, whose token it is');
    if (proxy.protocol !== 'https:')
      throw usage('--token-file: want https:// in --gateway, since tokens go over TLS only');
    proxy.username = encodeURIComponent(tenant);
    proxy.password = encodeURIComponent(tokenIn(tokenFile));
  }
  return { proxy, insecure: false, ...(await readCredentials(options)) };
}

/** Pipes until the destination has ended, each direction by itself. */
async function carried(tunnel: Socket, interrupted: AbortSignal): Promise<void> {
  process.stdin.pipe(tunnel);
  tunnel.pipe(process.stdout, { end: false });
  await finished(tunnel, { writable: false, signal: interrupted }).catch((error) => {
    if (interrupted.aborted) return;
    throw new Failure(EXIT.wrong, `the tunnel was cut: ${inWords(error)}`);
  });
}
