import { Candidate_Standing } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { short, shown } from '../model/text.ts';
import { type Column, Table } from '../parts/table.tsx';
import { Name, State, type Tone } from '../parts/text.tsx';
import type { Candidate, Explanation } from '../rpc.ts';

const { STANDING_TAKEN, STANDING_EQUAL, STANDING_LATER, STANDING_NOT } = Candidate_Standing;

const ROW = 44;
const COLUMNS_AT = { gateway: 10, hub: 370, agent: 680 };
const BOX = { width: 220, height: 34 };
const WIDTH = 910;

interface Standing {
  /** Of its line and box in the picture. */
  readonly style: string;
  readonly tone: Tone;
  readonly word: string;
}

/** The best first. */
const STANDINGS = new Map<number, Standing>([
  [STANDING_TAKEN, { style: 'taken', tone: 'good', word: 'takes it' }],
  [STANDING_EQUAL, { style: 'equal', tone: 'good', word: 'as good' }],
  [STANDING_LATER, { style: 'later', tone: 'calm', word: 'later' }],
  [STANDING_NOT, { style: 'not', tone: 'bad', word: 'no' }],
]);

/** Of a gateway of a later version. */
const UNKNOWN: Standing = { style: 'later', tone: 'calm', word: '?' };

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
  // A hub is as good as the best session behind it.
  const best = new Map(hubs.map((hub) => [hub, bestOf(drawn.filter(({ hubId }) => hubId === hub))]));
  return (
    <svg
      class="ways"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="img"
      aria-label="The ways of this dial; the table says the same"
    >
      {hubs.map((hub, index) => (
        <path
          key={hub}
          class={best.get(hub)}
          d={curve(COLUMNS_AT.gateway + BOX.width, height / 2, COLUMNS_AT.hub, yOf(index, hubs.length))}
        />
      ))}
      {drawn.map((candidate, index) => (
        <path
          key={candidate.sessionId}
          class={styleOf(candidate)}
          d={curve(
            COLUMNS_AT.hub + BOX.width,
            yOf(hubs.indexOf(candidate.hubId), hubs.length),
            COLUMNS_AT.agent,
            yOf(index, drawn.length),
          )}
        />
      ))}
      <Box x={COLUMNS_AT.gateway} y={height / 2} text={gateway} of="taken" />
      {hubs.map((hub, index) => (
        <Box key={hub} x={COLUMNS_AT.hub} y={yOf(index, hubs.length)} text={hub} of={best.get(hub) ?? ''} />
      ))}
      {drawn.map((candidate, index) => {
        const y = yOf(index, drawn.length);
        const of = styleOf(candidate);
        return <Box key={candidate.sessionId} x={COLUMNS_AT.agent} y={y} text={candidate.agentId} of={of} />;
      })}
    </svg>
  );
}

function Box({
  x,
  y,
  text,
  of,
}: {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly of: string;
}) {
  return (
    <g class={`box ${of}`} transform={`translate(${x} ${y - BOX.height / 2})`}>
      <rect width={BOX.width} height={BOX.height} rx={6} />
      <text x={BOX.width / 2} y={22}>
        {short(text, 24)}
      </text>
    </g>
  );
}

function curve(x1: number, y1: number, x2: number, y2: number): string {
  const middle = (x1 + x2) / 2;
  return `M ${x1} ${y1} C ${middle} ${y1}, ${middle} ${y2}, ${x2} ${y2}`;
}

function bestOf(candidates: readonly Candidate[]): string {
  const styles = candidates.map(styleOf);
  return [...STANDINGS.values()].find(({ style }) => styles.includes(style))?.style ?? '';
}

function styleOf({ standing }: Candidate): string {
  return (STANDINGS.get(standing) ?? UNKNOWN).style;
}

/** @param expected that they are not used is nothing bad */
function columnsOf(expected: boolean): readonly Column<Candidate>[] {
  const standingOf = ({ standing }: Candidate) => {
    const { tone, word } = STANDINGS.get(standing) ?? UNKNOWN;
    return <State tone={expected ? 'calm' : tone} word={word} />;
  };
  return [
    { name: 'Standing', of: standingOf },
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
