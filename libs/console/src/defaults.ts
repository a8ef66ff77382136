/** Times and counts of the console's page: times in milliseconds. */
export const CONSOLE = {
  /** Time between two looks at the plane while the page is seen. */
  lookMs: 2000,
  /** Sessions from which on they are read only at each `sessionRounds`th look: they are the largest answer of a large plane. */
  manySessions: 2000,
  /** Looks at a plane with many sessions of which one reads them. */
  sessionRounds: 5,
  /** Time between two reads of tunnels while their view is seen. */
  tunnelsMs: 2000,
  /** Time between two reads of what changes slowly: the last hour, and why a dial goes where it goes. */
  slowLookMs: 5000,
  /** How long an answer to the page may take. */
  readMs: 8000,
  /** How long a member may take to say how it is: one that hangs must not hold up the picture that shows it. */
  othersMs: 2500,
  /** How long an action may take: a dial takes up to a minute, and waits another one for a byte. */
  actMs: 125_000,
  /** How much longer than a member the one that asks it may take. */
  mergeMs: 500,
  /** How often the page is drawn for new dials at most, however many there are. */
  drawMs: 250,
  /** How long a press on a button or link holds the page still at most: browsers do not always say that it ended. */
  pressMs: 3000,
  /** Delay before a member whose stream of dials ended is asked again. */
  retryMs: 2000,
  /** Earlier dials that a member is asked for when the page begins to follow its dials. */
  recentDials: 300,
  /** Dials that the page keeps: more than anyone scrolls through, and about 2 MB. The oldest are dropped. */
  keptDials: 1000,
  /** Cut tunnels that are shown one by one, the last of the hour; all are counted by cause. */
  cutsShown: 100,
  /** Characters of a line of a stream, which is a dial with the longest names and a dozen attempts. A longer one ends the stream. */
  lineCharacters: 64 * 1024 * 1024,
  /** How long a button says that it has copied its line. */
  copiedMs: 2000,
  /** Findings of one kind that are shown one by one; the rest are counted. A wrong flag of agents often concerns all. */
  alike: 20,
  /** Characters of a name on the page. The longest that operators choose are pods' names, up to 63. */
  nameCharacters: 64,
  /** Characters of the reason of an action. */
  reasonCharacters: 500,
  /** Rows of the table of tunnels. */
  tunnelRows: 200,
  /** Rows of the table of dials: more slow the page down, and nobody reads them. */
  dialRows: 100,
  /** Agents of the dials that the page keeps, the slowest ones. */
  slowAgents: 8,
  /** Rows of the other tables of agents, sessions and tunnels. */
  rows: 50,
  /** Names that a field offers. */
  namesKnown: 500,
  /** Groups of agents that have a picture of their own. */
  agentGroups: 60,
  /**
   * Gateways, and hubs, that the picture of links can have. More would overlap: the table has all links, and the findings have all that is
   * lost.
   */
  membersDrawn: 6,
  /** Ways of a dial that are drawn. */
  waysDrawn: 8,
  /** Ways of a dial that are listed. */
  waysListed: 100,
};
