export interface DemoOptions {
  /** Two gateways, two hubs, two agents and Redis instead of one server with everything inside. */
  readonly split: boolean;
}

export const USAGE = `Starts a plane on this machine that carries real connections, and shows each dial.

Usage: npm start [-- FLAGS]

  --split   two gateways, two hubs, two agents and Redis, instead of one server and one agent
  --help    this text
`;

/**
 * Reads the command line. Returns undefined if only the usage is asked for.
 * @throws Error with one line that names the argument
 */
export function parseOptions(args: readonly string[]): DemoOptions | undefined {
  const unknown = args.find((arg) => !['--split', '--help', '-h'].includes(arg));
  if (unknown !== undefined) throw new Error(`unknown argument ${unknown}: npm start takes --split and --help`);
  if (args.includes('--help') || args.includes('-h')) return undefined;
  return { split: args.includes('--split') };
}
