// Log in: the broker exchanges the token for a cookie. The page keeps no token.
import { Failure, Field, html, useState } from "../parts/all.js";
import { logIn } from "../core/session.js";

export function LogIn({ onDone }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      onDone(await logIn(token.trim()));
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<main class="login" id="main"><h1>delaylog</h1><form onSubmit=${submit}>
    <${Field} label="Token" type="password" value=${token} onInput=${setToken} help="As delaylog token create prints it." />
    <${Failure} error=${error} /><button type="submit" class="main" disabled=${!token}>Log in</button></form></main>`;
}
