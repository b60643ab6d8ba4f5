// Places the boxes and routes the arrows of a graph: reads ELK's JSON from standard input, writes it with the places.
"use strict";
const { join } = require("node:path");
const ELK = require(join(process.argv[2], "node_modules", "elkjs", "lib", "elk.bundled.js"));
const chunks = [];
process.stdin.on("data", chunk => chunks.push(chunk));
process.stdin.on("end", () => new ELK().layout(JSON.parse(Buffer.concat(chunks).toString("utf8")))
  .then(graph => process.stdout.write(JSON.stringify(graph))));
