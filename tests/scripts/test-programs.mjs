// Reads what `cargo test --no-run --message-format=json` prints, and writes a line for each test program:
// package, name, directory of the package, program.
import { dirname } from "node:path";
import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if (message.reason !== "compiler-artifact" || !message.profile.test || !message.executable) continue;
    const directory = dirname(message.manifest_path);
    const { name, kind } = message.target;
    const isUnit = !kind.includes("test");
    console.log([packageOf(message.package_id), isUnit ? "unit" : name, directory, message.executable].join("\t"));
}

// "path+file:///directory#name@1.0.0", or without the name where the directory has it.
function packageOf(id) {
    const [path, version] = id.split("#");
    return version.includes("@") ? version.split("@")[0] : path.split("/").at(-1);
}
