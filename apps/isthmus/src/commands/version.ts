import process from 'node:process';
import { VERSION } from '@isthmus/service';
import { Option } from 'commander';
import { type Call, command } from '../command.ts';
import { EXIT, type Failure } from '../output.ts';
import { roleNames } from '../plane/member.ts';
import { table } from '../table.ts';

export const version = command({
  name: 'version',
  summary: "Show this program's version, and the members'",
  details: 'Exits with 3 if members do not answer; its own version is shown even so.',
  options: [new Option('--client', "only this program's; asks nobody")],
  examples: {
    version: 'are all members of one version?',
    'version --client -o json': 'for scripts',
  },
  asksNobody: (_args, { client }: { readonly client?: true }) => client === true,
  async run({ options, output, plane }: Call<{ readonly client?: true }>) {
    const client = { version: VERSION, runtime: `node ${process.versions.node}` };
    const own = `isthmus ${client.version}, ${client.runtime}\n`;
    if (options.client) {
      output.show({ client }, () => own);
      return EXIT.good;
    }
    const met = await plane().catch((error: unknown) => error as Failure);
    if (met instanceof Error) {
      output.show({ client, members: [] }, () => own);
      throw met;
    }
    const { answers, unanswered } = await met.ask('getStatus', {});
    const members = answers.map(({ member: { id: member }, value: { roles, version, runtime } }) => {
      return { member, roles: roleNames(roles), version, runtime };
    });
    return output.answers({ client, members, unanswered }, ({ members: shown }, style) => {
      const rows = shown.map((each) => [each.member, each.roles.join('+'), each.version, each.runtime]);
      return `${own}\n${table(['member', 'roles', 'version', 'runtime'], rows, style)}`;
    });
  },
});
