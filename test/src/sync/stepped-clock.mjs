// Moves its program's steady clock an hour on at each SIGUSR2, and says so in its log.
const HOUR_MS = 3_600_000;
const real = performance.now.bind(performance);
let ahead = 0;

performance.now = () => real() + ahead;
process.on('SIGUSR2', () => {
  ahead += HOUR_MS;
  process.stdout.write(`${JSON.stringify({ msg: `${ahead / HOUR_MS} hours ahead` })}\n`);
});
