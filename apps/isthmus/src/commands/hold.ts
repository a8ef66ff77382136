import { helpText, isthmusHold } from '@isthmus/flags';
import { command } from '../command.ts';
import { EXIT } from '../output.ts';

/** Its flags are those of a gateway, so main.ts runs it before anything reads the command line. This entry is for --help. */
export const hold = command({
  name: 'hold',
  summary: "Run the callers' end of a plane: it keeps API servers' tunnels while gateways restart",
  details: 'Its flags are those of a gateway: isthmus hold --help lists them. docs/RESUME.md says when to use it.',
  examples: {
    hold: 'lists its flags with --help; needs --gateways, and --uds-name or --server-port',
  },
  async run({ terminal }) {
    terminal.out(helpText(isthmusHold));
    return EXIT.good;
  },
});
