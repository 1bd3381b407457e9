// What the programs here share: a line of JSON for each call of a client, for test_node.py.
export async function report(call, run) {
  try {
    await run();
    console.log(JSON.stringify({ call }));
  } catch (error) {
    console.log(JSON.stringify({ call, error: String(error?.stack ?? error) }));
  }
}

export function assert(holds, message = "") {
  if (!holds) throw new Error(`it does not hold: ${message}`);
}
