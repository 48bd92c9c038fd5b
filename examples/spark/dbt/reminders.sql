{{ config(
    materialized='table',
    post_hook=[
        "CREATE OR REPLACE TEMPORARY VIEW reminders_out (id string, value string, deliver_at timestamp)
         USING delaylog OPTIONS (endpoint 'http://127.0.0.1:8711', topic 'reminders',
                                 txnAppId 'reminders-{{ var(\"day\") }}', wait 'published')",
        "INSERT INTO reminders_out BY NAME SELECT id, value, deliver_at FROM {{ this }}"
    ]
) }}
SELECT concat('rent-', tenant) AS id, 'pay rent' AS value, due AS deliver_at FROM tenants
