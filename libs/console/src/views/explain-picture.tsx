import { Candidate_Standing } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { shown } from '../model/text.ts';
import { Drawing } from '../parts/drawing.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Name, State, type Tone } from '../parts/text.tsx';
import type { Candidate, Explanation } from '../rpc.ts';

const { STANDING_TAKEN, STANDING_EQUAL, STANDING_LATER, STANDING_NOT } = Candidate_Standing;

const ROW = 44;
const COLUMNS_AT = { gateway: 120, hub: 455, agent: 790 };
const BOX = { width: 220, height: 34 };
const WIDTH = 910;

interface Standing {
  readonly tone: Tone;
  readonly word: string;
  /** Of its line in the picture. */
  readonly width: number;
}

/** The best first. */
const STANDINGS = new Map<number, Standing>([
  [STANDING_TAKEN, { tone: 'good', word: 'takes it', width: 5 }],
  [STANDING_EQUAL, { tone: 'good', word: 'as good', width: 2 }],
  [STANDING_LATER, { tone: 'calm', word: 'later', width: 2 }],
  [STANDING_NOT, { tone: 'bad', word: 'no', width: 2 }],
]);

/** Of a gateway of a later version. */
const UNKNOWN: Standing = { tone: 'calm', word: '?', width: 2 };

/** What `isthmus explain` says, as a picture: gateway, hubs, agents, and which way is taken. */
export function ExplainPicture({
  explanation,
  gateway,
}: {
  readonly explanation: Explanation;
  readonly gateway: string;
}) {
  const { verdict, advice, steps, others, policy, agentId, tenant } = explanation;
  const used = steps.find(({ taken }) => taken) ?? steps.find(({ candidates }) => candidates.length > 0);
  return (
    <>
      <p class={agentId === '' ? 'fault' : 'verdict'} role="status">
        {shown(verdict, 500)}
      </p>
      {policy && (
        <p>
          {policy.allowed ? 'Allowed' : 'Refused'} by the policy of tenant {shown(tenant)}
          {policy.rule !== '' && `, rule ${shown(policy.rule, 100)}`}.
        </p>
      )}
      {advice.length > 0 && (
        <>
          <h3>What to do</h3>
          <ol>
            {advice.map((line) => (
              <li key={line}>{shown(line, 500)}</li>
            ))}
          </ol>
        </>
      )}
      <ol class="steps">
        {steps.map(({ strategy, keys, taken, candidates }, index) => (
          <li key={strategy} class={taken ? 'taken' : undefined}>
            <b>
              {index + 1}. {shown(strategy)}
            </b>{' '}
            {keys.length === 0
              ? 'does not apply'
              : keys
                  .slice(0, 10)
                  .map(({ key, sessions }) => `${shown(key)} (${sessions})`)
                  .join(', ')}
            {taken ? ' ← chosen' : candidates.length === 0 ? '' : ' finds sessions'}
          </li>
        ))}
      </ol>
      {used && <Ways candidates={used.candidates} gateway={gateway} />}
      {used && <Candidates title={`Sessions that ${shown(used.strategy)} finds`} candidates={used.candidates} />}
      {others.length > 0 && <Candidates title="Agents that no strategy chooses" candidates={others} expected />}
    </>
  );
}

function Ways({ candidates, gateway }: { readonly candidates: readonly Candidate[]; readonly gateway: string }) {
  const drawn = candidates.slice(0, CONSOLE.waysDrawn);
  const hubs = [...new Set(drawn.map(({ hubId }) => hubId))];
  const height = Math.max(drawn.length, hubs.length, 1) * ROW;
  const yOf = (index: number, of: number) => ((index + 0.5) * height) / of;
  const styled = ({ tone, width }: Standing) => {
    return { tone, width, ...(tone === 'bad' && { broken: true, style: 'broken' as const }) };
  };
  const root = { key: 'gateway', name: gateway, tone: 'good' as const, x: COLUMNS_AT.gateway, y: height / 2 };
  const middle = hubs.map((name, index) => {
    // A hub is as good as the best session behind it.
    const behind = drawn.filter(({ hubId }) => hubId === name).map(standingOf);
    const best = [...STANDINGS.values()].find((each) => behind.includes(each)) ?? UNKNOWN;
    return { key: `hub ${name}`, name, x: COLUMNS_AT.hub, y: yOf(index, hubs.length), ...styled(best) };
  });
  const ends = drawn.map((candidate, index) => {
    const { sessionId: key, agentId: name, hubId } = candidate;
    const from = middle[hubs.indexOf(hubId)] ?? root;
    return { key, name, from, x: COLUMNS_AT.agent, y: yOf(index, drawn.length), ...styled(standingOf(candidate)) };
  });
  const ways = [...middle.map((hub) => ({ ...hub, from: root })), ...ends].map(({ from, x, y, ...way }) => {
    const [x1, x2] = [from.x + BOX.width / 2, x - BOX.width / 2];
    return { ...way, x1, y1: from.y, x2, y2: y };
  });
  return (
    <Drawing
      name="ways"
      title="The ways of this dial; the table says the same"
      width={WIDTH}
      height={height}
      size={BOX}
      boxes={[root, ...middle, ...ends]}
      ways={ways}
    />
  );
}

function standingOf({ standing }: Candidate): Standing {
  return STANDINGS.get(standing) ?? UNKNOWN;
}

/** @param expected that they are not used is nothing bad */
function columnsOf(expected: boolean): readonly Column<Candidate>[] {
  const stateOf = (candidate: Candidate) => {
    const { tone, word } = standingOf(candidate);
    return <State tone={expected ? 'calm' : tone} word={word} />;
  };
  return [
    { name: 'Standing', of: stateOf },
    { name: 'Agent', of: ({ agentId }) => <Name text={agentId} /> },
    { name: 'Hub', of: ({ hubId }) => <Name text={hubId} /> },
    { name: 'Zone', of: ({ zone }) => <Name text={zone} /> },
    { name: 'Found by', of: ({ key }) => <Name text={key} /> },
    { name: 'Tunnels', right: true, of: ({ open }) => open },
    { name: 'Why', of: ({ why }) => <Name text={why} most={200} /> },
  ];
}

interface CandidatesProps {
  readonly title: string;
  readonly candidates: readonly Candidate[];
  readonly expected?: boolean;
}

function Candidates({ title, candidates, expected = false }: CandidatesProps) {
  return (
    <>
      <h3>{title}</h3>
      <Table
        title={title}
        columns={columnsOf(expected)}
        rows={candidates}
        keyOf={({ sessionId }) => sessionId}
        bad={({ standing }) => standing === STANDING_NOT && !expected}
        none="None."
        most={CONSOLE.waysListed}
        more={(left) => `${left} more.`}
      />
    </>
  );
}
