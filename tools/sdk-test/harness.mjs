// Runs cases one after another, and says which of them failed.
export async function run(title, cases) {
  const failed = [];
  for (const [name, test] of Object.entries(cases)) {
    try {
      await test();
    } catch (error) {
      failed.push(name);
      console.log(`FAILED ${name}`);
      console.error(error);
    }
  }
  console.log(`${title}: ${Object.keys(cases).length - failed.length} passed, ${failed.length} failed`);
  process.exitCode = failed.length > 0 ? 1 : 0;
}
